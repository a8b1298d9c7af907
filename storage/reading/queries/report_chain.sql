/*
section = "training"
place = 90
title = "Is diversity at the start related to the variance band and to gains?"
caption = """
Regression over problems, with difficulty and arm held fixed: percentage points per standard deviation of diversity, \
or for membership of the variance band. Gains by dose: by thirds of the diversity that difficulty does not explain. \
These are correlations: a common cause may move diversity and gains, and difficulty is estimated from few rollouts."""
sources = ["chain"]
empty = "nothing was trained."
*/
-- Diversity at the start, variance band and gain: slopes by problem, gains by dose, means by source.
select c.metric, c.source, c.arm, c.dose, c.estimate as more_gain, c.low as more_gain_low, c.high as more_gain_high, c.p_value,
    c.p_adjusted, c.diversity, c.live_share, c.n, c.seeds, c.holds_for, c.method, c.reason
from chain c left join arms using (arm)
order by list_position(['diversity to band', 'band to gain', 'diversity to gain', 'gain by dose', 'by source'], c.metric),
    c.source <> 'all', c.source, list_position(['least diverse', 'middle', 'most diverse'], c.dose), place

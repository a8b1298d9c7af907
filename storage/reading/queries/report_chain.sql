/*
section = "training"
place = 90
title = "Does diversity at the start go with the variance band, and with gains?"
caption = """
By problem, with difficulty and arm held fixed: points for a standard deviation more of diversity, or for being in the \
variance band. Gains by dose are of thirds of diversity that difficulty leaves unexplained. Observed, not set: what \
makes traces differ may move gains by another way, and difficulty is known from a few rollouts only."""
sources = ["chain"]
empty = "nothing was trained."
*/
-- Diversity at the start, variance band and gain: slopes by problem, gains by dose, means by source.
select c.metric, c.source, c.arm, c.dose, c.estimate as more_gain, c.low as more_gain_low, c.high as more_gain_high, c.p_value,
    c.p_adjusted, c.diversity, c.live_share, c.n, c.seeds, c.holds_for, c.method, c.reason
from chain c left join arms using (arm)
order by list_position(['diversity to band', 'band to gain', 'diversity to gain', 'gain by dose', 'by source'], c.metric),
    c.source <> 'all', c.source, list_position(['least diverse', 'middle', 'most diverse'], c.dose), place

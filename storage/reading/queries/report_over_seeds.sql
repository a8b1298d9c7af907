/*
section = "training"
place = 65
title = "Statistics over seeds"
caption = """
Interquartile mean: accuracy over seeds and sources, without the lowest and the highest quarter. SD between seeds: \
of a training's accuracy on these problems. Probability of improvement: chance that a new seed of the first arm \
solves more of these problems than one of the other; 0.5 is no difference."""
sources = ["over_seeds"]
empty = "nothing was trained."
*/
-- Interquartile mean by arm, and probability of improvement between arms.
select t.metric, t.arm, t.other, t.source, t.estimate as found_share, t.low as found_share_low, t.high as found_share_high,
    t.mean as mean_rate, t.other_mean as other_mean_rate, t.n, t.seeds, t.other_seeds, t.holds_for, t.reason
from over_seeds t join arms a using (arm) left join arms o on o.arm = t.other
order by t.metric, a.place, o.place, t.source <> 'all', t.source

/*
section = "training"
place = 60
title = "Does one arm gain more than the other?"
caption = """
How much more the first arm gained from before training to its last adapter, paired by problem, over problems and \
training seeds; sequence: the confidence sequence, an interval that holds at all looks together, also where seeds, \
problems or rollouts are added after a look; detectable: what a study of this size, and of the spread that was seen, would find in 80 % of cases \
(two seeds hardly tell it); p_equivalent: small \
where the two gain the same to within two points. Sources of fewer than 30 problems are left out. This is the answer \
to the study's question."""
sources = ["gain_differences"]
empty = "there is one arm only, or nothing was trained."
*/
-- How much more one arm gained than another in held-out accuracy, over all sources and by each: the study's answer.
select g.arm, g.other, g.source, g.gain, g.other_gain, g.estimate as more_gain, g.low as more_gain_low,
    g.high as more_gain_high, g.sequence_low, g.sequence_high, g.p_value, g.p_adjusted, g.p_equivalent, g.p_equivalent_corrected,
    g.detectable as detectable_gain, g.n, g.seeds, g.holds_for, g.reason
from gain_differences g join arms a using (arm) join arms o on o.arm = g.other
where g.source = 'all' or g.n >= 30
order by a.place, o.place, g.source <> 'all', g.source

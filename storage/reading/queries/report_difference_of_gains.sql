/*
section = "training"
place = 60
title = "Does one arm gain more than the other?"
caption = """
The main result: how much more the first arm gained than the other, from before training to its last adapter, paired \
by problem, over problems and training seeds; its interval agrees with p_adjusted. sequence: the confidence sequence, an interval that holds for all looks \
together, also if seeds, problems or rollouts are added after a look; detectable: the difference that this design \
finds in 80 % of studies (unreliable with two seeds); p_equivalent: small if the gains are equal to within two \
percentage points. Sources with fewer than 30 problems are left out."""
sources = ["gain_differences"]
empty = "there is one arm only, or nothing was trained."
*/
-- The difference of two arms' gains in held-out accuracy, overall and by source: the study's main result.
select g.arm, g.other, g.source, g.gain, g.other_gain, g.estimate as more_gain,
    coalesce(g.corrected_low, g.low) as more_gain_low, coalesce(g.corrected_high, g.high) as more_gain_high,
    g.sequence_low, g.sequence_high, g.p_value, g.p_adjusted, g.p_equivalent, g.p_equivalent_corrected,
    g.detectable + coalesce((g.corrected_high - g.corrected_low) - (g.high - g.low), 0) / 2 as detectable_gain,
    g.n, g.seeds, g.holds_for, g.reason
from gain_differences g join arms a using (arm) join arms o on o.arm = g.other
where g.source = 'all' or g.n >= 30
order by a.place, o.place, g.source <> 'all', g.source

/*
section = "training"
place = 70
title = "Gains by source, against exposure"
caption = """
Under the last adapter minus before training, paired by problem, on the rollouts of the final evaluation, as everywhere on \
this page; beside it the share of the training pool, and of the groups really trained on, that came from the source. p_equivalent: small where accuracy is \
unchanged to within two points."""
sources = ["curves", "trainings"]
*/
-- Gain of the last adapter over the start, by source, beside what was trained on.
select arm, source, estimate as gain, low as gain_low, high as gain_high, p_value, p_adjusted, family, p_equivalent, p_equivalent_corrected,
    detectable, n, seeds, holds_for, training_share,
    exposure_share, reason
from curves join arms using (arm)
where series = 'gain'
order by place, source <> 'all', source

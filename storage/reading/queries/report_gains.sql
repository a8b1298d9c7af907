/*
section = "training"
place = 70
title = "Gains by source, beside exposure"
caption = """
Last adapter minus before training, paired by problem, on the rollouts of the final evaluation. training_share, \
exposure_share: the source's share of the training pool, and of the trained groups. p_equivalent: small if accuracy \
is unchanged to within two percentage points."""
sources = ["curves", "trainings"]
*/
-- Gain of the last adapter over the start, by source, beside the source's share of training.
select arm, source, estimate as gain, low as gain_low, high as gain_high, p_value, p_adjusted, family, p_equivalent, p_equivalent_corrected,
    detectable, n, seeds, holds_for, training_share,
    exposure_share, reason
from curves join arms using (arm)
where series = 'gain'
order by place, source <> 'all', source

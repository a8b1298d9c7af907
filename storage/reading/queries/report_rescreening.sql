/*
section = "bands"
place = 60
title = "Would a second screening say the same?"
caption = """
agreement: problems that get the same band again; mislabelled: dead problems that the second draw finds live. \
predicted: by the beta-binomial of the first draw. second draw: other rollouts of the screened policy, of held-out \
problems; halves: of each screening group, which are smaller and so agree less."""
sources = ["rescreening"]
*/
-- Bands of a first and a second draw: measured agreement beside the predicted one.
select arm, draw, metric, band, group_size, other_group_size, estimate as measured_share, low as measured_share_low,
    high as measured_share_high, predicted as predicted_share, predicted_low as predicted_share_low,
    predicted_high as predicted_share_high, n, reason
from rescreening join arms using (arm)
order by place, draw desc, metric, band nulls first

/*
section = "bands"
place = 60
title = "Reliability of the bands in a second screening"
caption = """
agreement: share of problems with the same band in both; mislabelled: share of dead problems that are live in the \
second. predicted: by the beta-binomial fitted to the first. second draw: new rollouts of the screened policy, on \
held-out problems; halves: of each screening group, which are smaller and so agree less."""
sources = ["rescreening"]
*/
-- Bands of a first and a second draw: measured agreement beside the predicted one.
select arm, draw, metric, band, group_size, other_group_size, estimate as measured_share, low as measured_share_low,
    high as measured_share_high, predicted as predicted_share, predicted_low as predicted_share_low,
    predicted_high as predicted_share_high, n, reason
from rescreening join arms using (arm)
order by place, draw desc, metric, band nulls first

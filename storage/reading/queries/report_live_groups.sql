/*
section = "training"
place = 30
title = "Groups with a gradient"
caption = "Share of a step's groups whose advantages are not all zero, which follows the variance band during training."
sources = ["trainings"]
[chart]
kind = "lines"
x = "step"
y = "live_groups"
x_name = "step"
y_name = "live groups"
*/
-- Groups with a gradient, and groups by band, by step.
select arm, seed, step, live_groups, variance / nullif(all_zero + variance + all_one, 0) as variance_share,
    all_zero, variance, all_one
from trainings join arms using (arm)
order by place, seed, step

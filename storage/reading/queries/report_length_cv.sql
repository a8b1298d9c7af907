/*
section = "training"
place = 50
title = "Spread of lengths within a group"
caption = "Coefficient of variation of completion length within a group, mean over groups: a cheap proxy of diversity."
sources = ["trainings"]
[chart]
kind = "lines"
x = "step"
y = "length_cv_within"
x_name = "step"
y_name = "length CV"
*/
-- Coefficient of variation of completion lengths within groups, by step.
select arm, seed, step, length_cv_within, length_mean, truncated
from trainings join arms using (arm)
order by place, seed, step

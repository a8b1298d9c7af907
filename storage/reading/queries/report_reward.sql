/*
section = "training"
place = 20
title = "Correct rollouts in training"
caption = "Share of correct rollouts of each step."
sources = ["trainings"]
[chart]
kind = "lines"
x = "step"
y = "correct_mean"
x_name = "step"
y_name = "correct"
*/
-- Correct rollouts, well-formed tags and reward, by step.
select arm, seed, step, correct_mean, tag_valid_mean, reward_mean
from trainings join arms using (arm)
order by place, seed, step

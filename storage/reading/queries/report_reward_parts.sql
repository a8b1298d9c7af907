/*
section = "training"
place = 22
title = "Parts of the reward"
caption = "What each part, times its weight, added to the mean reward of a step."
sources = ["trainings"]
empty = "the study does not list the parts of its reward (training.rewards)."
[chart]
kind = "lines"
x = "step"
y = "reward"
x_name = "step"
y_name = "reward"
each = "part"
*/
-- The mean reward of each step by part.
select arm, seed, step, substr(metric, len('reward_') + 1) as part, value as reward
from diagnostics join arms using (arm)
where starts_with(metric, 'reward_')
order by part, place, seed, step

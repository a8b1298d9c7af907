/*
section = "training"
place = 40
title = "Entropy"
caption = "Mean over each step's trained tokens."
sources = ["trainings"]
[chart]
kind = "lines"
x = "step"
y = "entropy"
x_name = "step"
y_name = "entropy (nats)"
*/
-- Entropy of the policy, and how far it is from the behaviour policy, by step.
select arm, seed, step, entropy, kl_behaviour, ratio_max, grad_norm
from trainings join arms using (arm)
order by place, seed, step

-- Entropy of the policy, and how far it is from the behaviour policy, by step.
select arm, seed, step, entropy, kl_behaviour, ratio_max, grad_norm
from trainings join arms using (arm)
order by place, seed, step

-- Correct rollouts, well-formed tags and reward, by step.
select arm, seed, step, correct_mean, tag_valid_mean, reward_mean
from trainings join arms using (arm)
order by place, seed, step

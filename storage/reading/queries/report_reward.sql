select arm, seed, step, correct_mean, tag_valid_mean, reward_mean
from trainings join arms using (arm)
order by place, seed, step

select arm, seed, step, live_groups, all_zero, variance, all_one
from trainings join arms using (arm)
order by place, seed, step

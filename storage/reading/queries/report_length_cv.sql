select arm, seed, step, length_cv_within, length_mean, truncated
from trainings join arms using (arm)
order by place, seed, step

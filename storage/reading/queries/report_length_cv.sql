-- Coefficient of variation of completion lengths within groups, by step.
select arm, seed, step, length_cv_within, length_mean, truncated
from trainings join arms using (arm)
order by place, seed, step

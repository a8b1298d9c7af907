-- Groups with a gradient, and groups by band, by step.
select arm, seed, step, live_groups, variance / nullif(all_zero + variance + all_one, 0) as variance_share,
    all_zero, variance, all_one
from trainings join arms using (arm)
order by place, seed, step

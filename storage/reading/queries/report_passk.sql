-- pass@k of all held-out problems, with bands that hold for all k together.
select arm, step, k, estimate as pass_at_k, low_simultaneous as pass_at_k_low, high_simultaneous as pass_at_k_high,
    n, rollouts, holds_for, reason
from passk join arms using (arm)
where metric = 'pass@k' and source = 'all'
order by place, step, k

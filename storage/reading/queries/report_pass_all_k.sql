-- pass^k: the chance that all of k rollouts are right.
select arm, step, k, estimate as pass_all_k_rate, low as pass_all_k_rate_low, high as pass_all_k_rate_high, n, reason
from passk join arms using (arm)
where metric = 'pass^k' and source = 'all'
order by place, step, k

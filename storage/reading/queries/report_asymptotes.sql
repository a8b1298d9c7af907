-- pass@k to the last rollout. doubling: what k adds to the k before it.
select arm, step, k, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, doubling as doubling_gain,
    doubling_low as doubling_gain_low, doubling_high as doubling_gain_high, unsolved, unsolved_below, n, policies
from asymptotes join arms using (arm)
where source = 'all'
order by place, step, k

-- pass@k against what k rollouts cost: compare at one place of the horizontal axis.
select arm, step, k, tokens, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high
from passk join arms using (arm)
where metric = 'pass@k' and source = 'all' and estimate is not null
order by place, step, k

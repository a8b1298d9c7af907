-- How far apart two policies' pass@k are, and whether the gap closes as k grows.
select metric, arm, step, other, other_step, k, estimate, low as estimate_low, high as estimate_high, p_value, p_adjusted,
    family, detectable, n, holds_for, reason
from contrasts
where source = 'all'
order by arm, step, other, other_step, metric = 'gap' desc, metric, k

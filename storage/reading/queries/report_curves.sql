-- Held-out accuracy by step, all sources together; seeds combined.
select arm, step, estimate as heldout_rate, low as heldout_rate_low, high as heldout_rate_high, n, rollouts, seeds,
    method, holds_for, reason
from curves join arms using (arm)
where series = 'heldout' and source = 'all'
order by place, step

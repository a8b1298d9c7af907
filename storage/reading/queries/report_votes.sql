-- One answer from k rollouts: by majority, or the one that a selector without a cost picks.
select metric, arm, step, k, estimate as right_rate, low as right_rate_low, high as right_rate_high, n, holds_for, reason
from votes join arms using (arm)
where source = 'all'
order by metric, place, step, k

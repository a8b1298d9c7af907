/*
section = "passk"
place = 40
title = "pass@k by source"
caption = "Point-wise 95 % intervals."
sources = ["passk"]
*/
-- pass@k by source.
select source, arm, step, k, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, n, holds_for, reason
from passk join arms using (arm)
where metric = 'pass@k' and source <> 'all'
order by source, place, step, k

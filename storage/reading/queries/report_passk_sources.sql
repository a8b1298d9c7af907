/*
section = "passk"
place = 40
title = "pass@k by source"
caption = "Pointwise 95 % intervals. Sources with fewer than 30 problems are left out."
sources = ["passk"]
empty = "no source has 30 problems or more."
*/
-- pass@k by source.
select source, arm, step, k, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, n, holds_for, reason
from passk join arms using (arm)
where metric = 'pass@k' and source <> 'all' and n >= 30
order by source, place, step, k

/*
section = "passk"
place = 55
title = "G-Pass@k"
caption = """
The chance that at least a quarter, half or three quarters of k rollouts are correct: the reliability of a policy. \
At least one of k is pass@k, all of k is pass^k. mG-Pass@k: mean over the thresholds above a half."""
sources = ["g_pass"]
*/
-- G-Pass@k: at least a given share of k rollouts is correct.
select metric, arm, step, k, threshold, wanted, estimate as g_pass_rate, low as g_pass_rate_low, high as g_pass_rate_high,
    n, holds_for, reason
from g_pass join arms using (arm)
where source = 'all'
order by place, step, k, threshold nulls last

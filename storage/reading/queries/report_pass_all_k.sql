/*
section = "passk"
place = 50
title = "pass^k"
caption = "The chance that all of k rollouts are correct: reliability."
sources = ["passk"]
[chart]
kind = "lines"
x = "k"
y = "pass_all_k_rate"
x_name = "k (log scale)"
y_name = "pass^k"
log_x = true
*/
-- pass^k: the chance that all of k rollouts are right.
select arm, step, k, estimate as pass_all_k_rate, low as pass_all_k_rate_low, high as pass_all_k_rate_high, n, holds_for, reason
from passk join arms using (arm)
where metric = 'pass^k' and source = 'all'
order by place, step, k

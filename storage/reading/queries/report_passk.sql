/*
section = "passk"
place = 10
title = "pass@k of the held-out problems"
caption = "Shaded: simultaneous 95 % bands, which hold for all k together."
sources = ["passk"]
[chart]
kind = "lines"
x = "k"
y = "pass_at_k"
x_name = "k (log scale)"
y_name = "pass@k"
log_x = true
*/
-- pass@k of all held-out problems, with simultaneous bands over k.
select arm, step, k, estimate as pass_at_k, low_simultaneous as pass_at_k_low, high_simultaneous as pass_at_k_high,
    n, rollouts, holds_for, reason
from passk join arms using (arm)
where metric = 'pass@k' and source = 'all'
order by place, step, k

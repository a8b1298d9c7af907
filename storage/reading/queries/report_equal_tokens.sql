/*
section = "passk"
place = 20
title = "Coverage at equal tokens"
caption = "The same points, by what k rollouts cost: compare heights at one place of the horizontal axis."
sources = ["passk"]
[chart]
kind = "lines"
x = "tokens"
y = "pass_at_k"
x_name = "completion tokens (log scale)"
y_name = "pass@k"
log_x = true
*/
-- pass@k against what k rollouts cost: compare at one place of the horizontal axis.
select arm, step, k, tokens, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, holds_for
from passk join arms using (arm)
where metric = 'pass@k' and source = 'all' and estimate is not null
order by place, step, k

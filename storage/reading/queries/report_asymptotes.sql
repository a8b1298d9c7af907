/*
section = "passk"
place = 70
title = "pass@k up to all rollouts"
caption = """
k is doubled up to the number of rollouts. doubling: increase from the last doubling, near zero at the asymptote; \
unsolved below: upper bound of the success rate of an unsolved problem (95 %)."""
sources = ["asymptotes"]
empty = "not requested in this run (profile field asymptote)."
[chart]
kind = "lines"
x = "k"
y = "pass_at_k"
x_name = "k (log scale)"
y_name = "pass@k"
log_x = true
*/
-- pass@k up to all rollouts. doubling: increase over the previous k.
select arm, step, k, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, doubling as doubling_gain,
    doubling_low as doubling_gain_low, doubling_high as doubling_gain_high, unsolved, unsolved_below, n, policies, holds_for
from asymptotes join arms using (arm)
where source = 'all'
order by place, step, k

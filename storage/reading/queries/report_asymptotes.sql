/*
section = "passk"
place = 70
title = "Where pass@k ends"
caption = """
k doubled up to the last rollout. doubling: what the last doubling added, near zero at the asymptote; unsolved \
below: the chance of a correct rollout that an unsolved problem may still have (95 %)."""
sources = ["asymptotes"]
empty = "not asked in this run (profile field asymptote)."
[chart]
kind = "lines"
x = "k"
y = "pass_at_k"
x_name = "k (log scale)"
y_name = "pass@k"
log_x = true
*/
-- pass@k to the last rollout. doubling: what k adds to the k before it.
select arm, step, k, estimate as pass_at_k, low as pass_at_k_low, high as pass_at_k_high, doubling as doubling_gain,
    doubling_low as doubling_gain_low, doubling_high as doubling_gain_high, unsolved, unsolved_below, n, policies, holds_for
from asymptotes join arms using (arm)
where source = 'all'
order by place, step, k

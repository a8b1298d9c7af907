/*
section = "passk"
place = 30
title = "Gaps and their closure"
caption = """
gap: arm minus other at k; equal_tokens: arm at k minus other at as many rollouts as cost the same, or both at what \
all of the cheaper one's cost, where that is less; closure: how \
much of the gap at the smallest k is gone at the largest, closure_of_failures and closure_of_logits on those scales; \
closure_of_shift: what a constant shift of logits would close, which is no width; closure_beyond_shift: what is left; \
monotone: share of bootstrap draws in which every step of k narrows it."""
sources = ["contrasts"]
empty = "contrasts of pass@k were not made in this run."
*/
-- How far apart two policies' pass@k are, and whether the gap closes as k grows.
select metric, arm, step, other, other_step, k, estimate, low as estimate_low, high as estimate_high, p_value, p_adjusted,
    family, detectable, n, holds_for, reason
from contrasts
where source = 'all'
order by arm, step, other, other_step, metric = 'gap' desc, metric, k

/*
section = "passk"
place = 30
title = "Gaps and their closure"
caption = """
gap: arm minus other at k; equal_tokens: the same at equal cost per problem; closure: reduction of the gap from the \
smallest k to the largest; closure_of_failures, closure_of_logits: on those scales; closure_of_shift: the closure \
that a constant shift of logits would give without any difference in width; closure_beyond_shift: the rest; \
monotone: share of bootstrap draws in which every step of k narrows the gap."""
sources = ["contrasts"]
empty = "contrasts of pass@k were not made in this run."
*/
-- Gaps between two policies' pass@k, and whether they close as k grows.
select metric, arm, step, other, other_step, k, estimate, low as estimate_low, high as estimate_high, p_value, p_adjusted,
    family, detectable, n, holds_for, reason
from contrasts
where source = 'all'
order by arm, step, other, other_step, metric = 'gap' desc, metric, k

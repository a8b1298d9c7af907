/*
section = "benchmarks"
place = 30
title = "Gaps and their closure by benchmark"
caption = """
Arm minus other at the smallest k and at the largest; closure: reduction of the gap between them; closure of shift: \
the closure that a constant shift of logits would give without any difference in width; closure beyond shift: the \
rest; monotone: share of bootstrap draws in which every step of k narrows the gap. Pointwise 95 % intervals over \
problems."""
sources = ["slice_contrasts", "benchmarks"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Gaps between two policies' pass@k on each benchmark, at the smallest k and the largest, and their closure.
with
told as (
    select benchmark, c.*
    from slice_contrasts as c
    join sliced_by on sliced_by.slice_contrasts = c.ref
    join (select distinct ref, benchmark from benchmarks) as named on named.ref = sliced_by.benchmarks
    where source = 'all'
)
select benchmark, arm, step, other, other_step,
    arg_min(estimate, k) filter (metric = 'gap') as first_gap,
    arg_min(low, k) filter (metric = 'gap') as first_gap_low,
    arg_min(high, k) filter (metric = 'gap') as first_gap_high,
    max(k) filter (metric = 'gap' and estimate is not null) as last_k,
    arg_max(estimate, k) filter (metric = 'gap') as last_gap,
    arg_max(low, k) filter (metric = 'gap') as last_gap_low,
    arg_max(high, k) filter (metric = 'gap') as last_gap_high,
    any_value(estimate) filter (metric = 'closure') as closure,
    any_value(low) filter (metric = 'closure') as closure_low,
    any_value(high) filter (metric = 'closure') as closure_high,
    any_value(p_adjusted) filter (metric = 'closure') as closure_adjusted_p,
    any_value(estimate) filter (metric = 'closure_of_shift') as closure_of_shift,
    any_value(estimate) filter (metric = 'closure_beyond_shift') as closure_beyond_shift,
    any_value(low) filter (metric = 'closure_beyond_shift') as closure_beyond_shift_low,
    any_value(high) filter (metric = 'closure_beyond_shift') as closure_beyond_shift_high,
    any_value(p_adjusted) filter (metric = 'closure_beyond_shift') as beyond_adjusted_p,
    any_value(family) as family,
    any_value(estimate) filter (metric = 'monotone') as monotone,
    max(n) as n, any_value(holds_for) as holds_for, any_value(reason) filter (estimate is null) as reason
from told
group by benchmark, arm, step, other, other_step
order by benchmark, arm, step, other, other_step

-- How far apart two policies' pass@k are on each benchmark, at the smallest k and the largest, and what closes between.
with
told as (
    select benchmark, c.*
    from slice_contrasts as c
    join sliced_by on sliced_by.slice_contrasts = c.ref
    join (select distinct ref, benchmark from benchmarks) as named on named.ref = sliced_by.benchmarks
    where source = 'all'
)
select benchmark, arm, step, other, other_step,
    arg_min(estimate, k) filter (question = 'gap') as first_gap,
    arg_min(low, k) filter (question = 'gap') as first_gap_low,
    arg_min(high, k) filter (question = 'gap') as first_gap_high,
    max(k) filter (question = 'gap' and estimate is not null) as last_k,
    arg_max(estimate, k) filter (question = 'gap') as last_gap,
    arg_max(low, k) filter (question = 'gap') as last_gap_low,
    arg_max(high, k) filter (question = 'gap') as last_gap_high,
    any_value(estimate) filter (question = 'closure') as closure,
    any_value(low) filter (question = 'closure') as closure_low,
    any_value(high) filter (question = 'closure') as closure_high,
    any_value(p_value) filter (question = 'closure') as closure_p,
    any_value(estimate) filter (question = 'monotone') as monotone,
    max(n) as n, any_value(reason) filter (estimate is null) as reason
from told
group by benchmark, arm, step, other, other_step
order by benchmark, arm, step, other, other_step

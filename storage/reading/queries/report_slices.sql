/*
section = "benchmarks"
place = 20
title = "pass@k by benchmark"
caption = "Shaded: simultaneous 95 % bands, which hold for all k together."
sources = ["slices", "benchmarks"]
[chart]
kind = "lines"
x = "k"
y = "pass_at_k"
x_name = "k (log scale)"
y_name = "pass@k"
log_x = true
each = "benchmark"
*/
-- pass@k on each benchmark, with simultaneous bands over k.
select benchmark, arm, step, k, estimate as pass_at_k, low_simultaneous as pass_at_k_low,
    high_simultaneous as pass_at_k_high, n, rollouts, holds_for, reason
from slices
join sliced_by on sliced_by.slices = slices.ref
join (select distinct ref, benchmark from benchmarks) as named on named.ref = sliced_by.benchmarks
join arms using (arm)
where metric = 'pass@k' and source = 'all'
order by benchmark, place, step, k

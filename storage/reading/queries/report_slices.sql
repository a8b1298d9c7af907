-- pass@k on each benchmark, with bands that hold for all k together.
select benchmark, arm, step, k, estimate as pass_at_k, low_simultaneous as pass_at_k_low,
    high_simultaneous as pass_at_k_high, n, rollouts, reason
from slices
join sliced_by on sliced_by.slices = slices.ref
join (select distinct ref, benchmark from benchmarks) as named on named.ref = sliced_by.benchmarks
join arms using (arm)
where metric = 'pass@k' and source = 'all'
order by benchmark, place, step, k

/*
section = "answer"
place = 10
title = "Held-out accuracy, and the difference between arms"
caption = ""
sources = ["passk", "curves", "final", "contrasts", "gain_differences"]
[chart]
kind = "levels"
x = "after_rate"
y = "gain"
x_name = "held-out accuracy, %"
y_name = "difference, points"
[legend]
hollow = "Hollow: before training."
trained = "Filled: with the last adapter."
untrained = "Filled: the model, without training."
after_rate_low = "Thick line: 95 % interval."
seed = "Small dots: single training seeds."
gains = """
Below: how much more one arm gained than the other, with its 95 % interval. A pair whose interval contains 0 is \
undecided. Gains have two digits, so that they can be subtracted."""
rates = """
Below: how much more one arm solves than the other, with its 95 % interval. A pair whose interval contains 0 is \
undecided."""
corrected = "These intervals are corrected for the number of pairs."
detectable_gain = "Grey: true differences found in fewer than 4 of 5 such studies."
*/
-- One row per arm, per training seed (if there are several), and per two arms.
with ends as (
    select arm, min(step) as first, max(step) as last from passk
    where metric = 'pass@k' and source = 'all' and k = 1 group by arm),
per_problem as (
    select arm, step, seed, problem_id, avg(correct::int) as rate, count(*) as rollouts from final group by all),
counted as (select arm, step, sum(rollouts)::bigint as rollouts from per_problem group by all),
seeds as (
    select arm, seed, avg(rate) as rate from per_problem join ends using (arm)
    where step = last and last > first group by arm, seed),
pairs as (
    select arm, other, estimate, coalesce(corrected_low, low) as low, coalesce(corrected_high, high) as high,
        sequence_low, sequence_high, holds_for, n, reason, if(corrected_low <> g.low, true, null) as corrected,
        detectable + coalesce((corrected_high - corrected_low) - (g.high - g.low), 0) / 2 as detectable
    from gain_differences g where source = 'all'
    union all by name
    select arm, other, estimate, low, high, holds_for, n, reason, detectable from contrasts
    where metric = 'gap' and k = 1 and source = 'all' and arm <> other and step = 0 and other_step = 0
        and (select max(last) from ends) = 0),
-- the arm that gained more comes first, as in the verdict
ordered as (
    from pairs where estimate is null or estimate >= 0
    union all by name
    select * replace (other as arm, arm as other, -estimate as estimate, -high as low, -low as high,
        -sequence_high as sequence_low, -sequence_low as sequence_high)
    from pairs where estimate < 0)
select 'level' as row, l.arm as label, l.arm, null as other, b.estimate as before_rate, l.estimate as after_rate,
    l.low as after_rate_low, l.high as after_rate_high, g.estimate as gain, g.low as gain_low, g.high as gain_high,
    null::double as sequence_low, null::double as sequence_high, null::double as detectable_gain, l.holds_for, l.n,
    c.rollouts, a.place
from ends e join arms a using (arm)
join passk l on l.arm = e.arm and l.step = e.last and l.metric = 'pass@k' and l.source = 'all' and l.k = 1
left join passk b on b.arm = e.arm and b.step = e.first and e.first < e.last and b.metric = 'pass@k'
    and b.source = 'all' and b.k = 1
left join curves g on g.arm = e.arm and g.series = 'gain' and g.source = 'all'
left join counted c on c.arm = e.arm and c.step = e.last
union all by name
select 'seed' as row, arm as label, arm, rate as after_rate, place from seeds join arms using (arm)
where (select count(distinct seed) from seeds) > 1
union all by name
select 'difference' as row, arm || ' − ' || other as label, arm, other, estimate as gain, low as gain_low,
    high as gain_high, sequence_low, sequence_high, corrected, detectable as detectable_gain, holds_for, n, place
from ordered join arms using (arm)
order by row desc, place, label

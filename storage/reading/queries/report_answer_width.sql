/*
section = "answer"
place = 40
title = "Width: distance of a problem's traces, and the difference between arms"
caption = """
Width is the mean distance of two traces of one problem (1 − cosine of their embeddings). Problems are those of which \
all arms have equally many traces."""
sources = ["diversity", "diversities", "final"]
[chart]
kind = "levels"
x = "after_width"
y = "difference"
x_name = "width"
y_name = "difference of widths"
digits = 3
[legend]
untrained = "Filled: the model, without training."
after_width_low = "Thick line: 95 % interval."
difference = """
Below: how much wider one arm is than the other, with its 95 % interval. A pair whose interval contains 0 is \
undecided."""
corrected = "These intervals are corrected for the number of pairs."
detectable_difference = "Grey: true differences found in fewer than 4 of 5 such studies."
*/
-- One row per arm, and per two arms, before training.
with per_problem as (
    select f.arm, d.problem_id, avg(d.diversity) as width, avg(d.n) as traces
    from (select distinct ref, arm from final where step = 0) f join measured m on m.final = f.ref
    join diversities d on d.ref = m.diversity
    where d."window" = 'whole' and d.diversity is not null group by all),
alike as (
    select problem_id from per_problem group by problem_id
    having min(traces) = max(traces) and count(*) = (select count(distinct arm) from per_problem)),
widths as (
    select arm, avg(width) as width, interval_over_problems(list(width order by problem_id)) as ends, count(*) as n
    from per_problem join alike using (problem_id) group by arm),
pairs as (
    select arm, other, difference, coalesce(corrected_low, low) as low, coalesce(corrected_high, high) as high,
        if(corrected_low <> d.low, true, null) as corrected, holds_for, n, relative,
        detectable + coalesce((corrected_high - corrected_low) - (d.high - d.low), 0) / 2 as detectable
    from diversity d
    where metric = 'diversity' and basis = 'equal_n' and "window" = 'whole' and step = 0 and other_step = 0
        and arm <> other and difference is not null),
ordered as (
    from pairs where difference >= 0
    union all by name
    select * replace (other as arm, arm as other, -difference as difference, -high as low, -low as high)
    from pairs where difference < 0)
select 'level' as row, arm as label, arm, null as other, null::double as before_width, width as after_width,
    ends[1] as after_width_low, ends[2] as after_width_high, null::double as difference,
    null::double as difference_low, null::double as difference_high, null::double as detectable_difference, n, place
from widths join arms using (arm)
union all by name
select 'difference' as row, arm || ' − ' || other as label, arm, other, difference, low as difference_low,
    high as difference_high, corrected, detectable as detectable_difference, holds_for, n, place
from ordered join arms using (arm)
order by row desc, place, label

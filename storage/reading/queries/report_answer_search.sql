/*
section = "answer"
place = 30
title = "Accuracy of search methods within the largest budget"
caption = """
Hollow: before training. Filled: the last adapter, with its 95 % interval. Below: the best method minus one rollout, at \
the same budget."""
sources = ["search_curves", "search_contrasts"]
[chart]
kind = "levels"
*/
-- One row per arm and method, and per arm the best method against one rollout.
with largest as (
    select c.*, if((select count(distinct arm) from search_curves) > 1, arm || ' · ', '')
        || if(method = 'first', 'one rollout', method) as label
    from search_curves c
    where metric = 'accuracy' and series = 'method' and budget = (select max(budget) from search_curves)),
steps as (select arm, min(step) as first, max(step) as last from largest group by arm),
after as (select l.* from largest l join steps s on s.arm = l.arm and l.step = s.last),
best as (
    select arm, step, method, label from after
    qualify row_number() over (partition by arm order by estimate desc, tokens, method) = 1)
select 'level' as row, a.label, a.arm, null as other, b.estimate as before_rate, a.estimate as after_rate,
    a.low as after_rate_low, a.high as after_rate_high, a.estimate - b.estimate as gain, null::double as gain_low,
    null::double as gain_high, null::double as detectable_gain, a.holds_for, a.n, place
from after a join arms using (arm)
left join largest b on b.arm = a.arm and b.method = a.method and b.step <> a.step
    and b.step = (select first from steps s where s.arm = a.arm)
union all by name
select 'difference' as row, best.label || ' − one rollout' as label, arm, best.method as other,
    if(c.method = best.method, 1, -1) * c.estimate as gain, if(c.method = best.method, c.low, -c.high) as gain_low,
    if(c.method = best.method, c.high, -c.low) as gain_high, c.holds_for, c.n, place
from best join search_contrasts c using (arm, step) join arms using (arm)
where c.metric = 'accuracy' and c.other = arm and c.other_step = step
    and c.budget = (select max(budget) from search_contrasts)
    and ((c.method = best.method and c.other_method = 'first') or (c.other_method = best.method and c.method = 'first'))
order by row desc, place, after_rate desc, label

/*
section = "answer"
place = 30
title = "Accuracy of search methods within the largest budget"
caption = """
Methods may spend the whole budget; one rollout answers with the first. Differences are rounded after they are \
computed."""
sources = ["search_curves", "search_contrasts"]
[chart]
kind = "levels"
[legend]
before_rate = "Hollow: before training."
after_rate = "Filled: the last adapter, or the model if nothing was trained."
after_rate_low = "Thick line: 95 % interval."
gain_of_pair = "Below: each method minus one rollout, with its 95 % interval."
detectable_gain = "Grey: differences that this study is too small to find."
*/
-- One row per arm and method, and one per method against one rollout.
with largest as (
    select c.*, if((select count(distinct arm) from search_curves) > 1, arm || ' · ', '')
        || if(method = 'first', 'one rollout', method) as label
    from search_curves c
    where metric = 'accuracy' and series = 'method' and budget = (select max(budget) from search_curves)),
steps as (select arm, min(step) as first, max(step) as last from largest group by arm),
after as (select l.* from largest l join steps s on s.arm = l.arm and l.step = s.last)
select 'level' as row, a.label, a.arm, null as other, b.estimate as before_rate, a.estimate as after_rate,
    a.low as after_rate_low, a.high as after_rate_high, a.estimate - b.estimate as gain, null::double as gain_low,
    null::double as gain_high, null::double as detectable_gain, null::double as p_adjusted, a.holds_for, a.n, a.budget,
    place
from after a join arms using (arm)
left join largest b on b.arm = a.arm and b.method = a.method and b.step <> a.step
    and b.step = (select first from steps s where s.arm = a.arm)
union all by name
select 'difference' as row, a.label || ' − one rollout' as label, arm, a.method as other,
    if(c.method = a.method, 1, -1) * c.estimate as gain, if(c.method = a.method, c.low, -c.high) as gain_low,
    if(c.method = a.method, c.high, -c.low) as gain_high, c.detectable as detectable_gain, c.p_adjusted, c.holds_for,
    c.n, a.budget, place
from after a join search_contrasts c using (arm, step, budget) join arms using (arm)
where c.metric = 'accuracy' and c.other = arm and c.other_step = step
    and ((c.method = a.method and c.other_method = 'first') or (c.other_method = a.method and c.method = 'first'))
order by row desc, place, coalesce(after_rate, gain) desc, label

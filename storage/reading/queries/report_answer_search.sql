/*
section = "answer"
place = 30
title = "Accuracy of search methods within the largest budget"
caption = "Each method may spend the whole budget on a problem; one rollout answers with the first. Tokens include prompts."
sources = ["search_curves", "search_contrasts"]
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
difference = """
Below: how much more one method solves than another, with its 95 % interval. A pair whose interval contains 0 is \
undecided."""
corrected = "These intervals are corrected for the number of comparisons."
detectable_gain = "Grey: true differences found in fewer than 4 of 5 such studies."
*/
-- One row per arm and method; one per method against one rollout; one for the best method against the second best.
-- The base method has the name first, or first with a width.
with largest as (
    select c.* replace (regexp_replace(method, '^first:.*', 'first') as method),
        if((select count(distinct arm) from search_curves) > 1, arm || ' · ', '') as head,
        if(split_part(method, ':', 1) = 'first', 'one rollout', method) as called
    from search_curves c
    where metric = 'accuracy' and series = 'method' and budget = (select max(budget) from search_curves)),
steps as (select arm, min(step) as first, max(step) as last from largest group by arm),
after as (select l.* from largest l join steps s on s.arm = l.arm and l.step = s.last),
ranked as (
    select *, row_number() over (partition by arm order by estimate desc, method) as rank from after
    where method <> 'first'),
pairs as (
    select arm, step, head, called, method, 'first' as against, 'one rollout' as than from after where method <> 'first'
    union all by name
    select a.arm, a.step, a.head, a.called, a.method, b.method as against, b.called as than
    from ranked a join ranked b using (arm) where a.rank = 1 and b.rank = 2),
one_way as (
    select * replace (regexp_replace(method, '^first:.*', 'first') as method,
        regexp_replace(other_method, '^first:.*', 'first') as other_method)
    from search_contrasts where metric = 'accuracy' and other = arm and other_step = step),
contrasts as (
    from one_way
    union all by name
    select * replace (other_method as method, method as other_method, -estimate as estimate, -high as low,
        -low as high, -corrected_high as corrected_low, -corrected_low as corrected_high)
    from one_way)
select 'level' as row, a.head || a.called as label, a.arm, null as other, b.estimate as before_rate,
    a.estimate as after_rate, a.low as after_rate_low, a.high as after_rate_high, a.estimate - b.estimate as gain,
    null::double as gain_low, null::double as gain_high, null::double as detectable_gain, null::double as p_adjusted,
    a.holds_for, a.n, a.budget, a.method, a.tokens, a.rollouts, place
from after a join arms using (arm)
left join largest b on b.arm = a.arm and b.method = a.method and b.step <> a.step
    and b.step = (select first from steps s where s.arm = a.arm)
union all by name
select 'difference' as row, p.head || p.called || ' − ' || p.than as label, p.arm, p.method as other, p.against,
    c.estimate as gain, coalesce(corrected_low, low) as gain_low, coalesce(corrected_high, high) as gain_high,
    if(corrected_low <> low, true, null) as corrected,
    detectable + coalesce((corrected_high - corrected_low) - (high - low), 0) / 2 as detectable_gain,
    c.p_adjusted, c.holds_for, c.n, c.budget, p.method, place
from pairs p join contrasts c on c.arm = p.arm and c.step = p.step and c.method = p.method and c.other_method = p.against
join arms on arms.arm = p.arm
where c.budget = (select max(budget) from search_curves)
order by row desc, place, coalesce(after_rate, gain) desc, label

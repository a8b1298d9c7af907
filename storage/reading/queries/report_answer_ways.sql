/*
section = "answer"
place = 25
title = "Correct ways to solve a problem by objective, and the difference from the study's own"
caption = "The width of an objective: the expected number of different correct traces among 8 rollouts of a problem."
sources = ["objectives"]
empty = "correct ways are counted among 8 rollouts of a problem, and the final evaluation has fewer."
[chart]
kind = "levels"
x = "after_ways"
y = "difference"
x_name = "correct ways among 8 rollouts"
y_name = "difference of correct ways"
[legend]
hollow = "Hollow: before training."
trained = "Filled: trained with the objective."
after_ways_low = "Thick line: 95 % interval."
difference = """
Below: how many more correct ways an objective finds than the study's own (its training.advantage and rewards), with \
its 95 % interval. An objective whose interval contains 0 is undecided."""
corrected = "These intervals are corrected for the number of comparisons."
detectable_difference = "Grey: true differences found in fewer than 4 of 5 such studies."
*/
-- One row per arm and objective, and per objective against the study's own.
with named as (
    select *, if((select count(distinct arm) from objectives) > 1, arm || ' · ', '')
        || if(objective = 'as the study has it', 'own objective', objective) as label,
        row_number() over () as number
    from objectives where metric = 'right ways among 8')
select 'level' as row, label, arm, null as other, before as before_ways, after as after_ways,
    after_low as after_ways_low, after_high as after_ways_high, null::double as difference,
    null::double as difference_low, null::double as difference_high, null::double as detectable_difference,
    null::double as p_adjusted, holds_for, n, place, number
from named join arms using (arm)
union all by name
select 'difference' as row, label || ' − own' as label, arm, objective as other, over_baseline as difference,
    coalesce(corrected_low, over_low) as difference_low, coalesce(corrected_high, over_high) as difference_high,
    if(corrected_low <> over_low, true, null) as corrected,
    detectable + coalesce((corrected_high - corrected_low) - (over_high - over_low), 0) / 2 as detectable_difference,
    p_adjusted, holds_for, n, place, number
from named join arms using (arm) where objective <> 'as the study has it'
order by row desc, place, number

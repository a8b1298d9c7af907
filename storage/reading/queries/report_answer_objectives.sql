/*
section = "answer"
place = 20
title = "Held-out accuracy by objective, and the difference from the study's own"
caption = "Gains have two digits, so that they can be subtracted."
sources = ["objectives"]
[chart]
kind = "levels"
x = "after_rate"
y = "gain"
x_name = "held-out accuracy, %"
y_name = "difference, points"
[legend]
hollow = "Hollow: before training."
trained = "Filled: trained with the objective."
after_rate_low = "Thick line: 95 % interval."
difference = """
Below: how much more an objective gained than the study's own (its training.advantage and rewards), with its 95 % \
interval. An objective whose interval contains 0 is undecided."""
corrected = "These intervals are corrected for the number of comparisons."
detectable_gain = "Grey: true differences found in fewer than 4 of 5 such studies."
*/
-- One row per arm and objective, and per objective against the study's own.
with named as (
    select *, if((select count(distinct arm) from objectives) > 1, arm || ' · ', '')
        || if(objective = 'as the study has it', 'own objective', objective) as label,
        row_number() over () as number
    from objectives where metric = 'pass@1')
select 'level' as row, label, arm, null as other, before as before_rate, after as after_rate,
    after_low as after_rate_low, after_high as after_rate_high, change as gain, change_low as gain_low, change_high as gain_high,
    null::double as detectable_gain, null::double as p_adjusted, holds_for, n, place, number
from named join arms using (arm)
union all by name
select 'difference' as row, label || ' − own' as label, arm, objective as other, over_baseline as gain,
    coalesce(corrected_low, over_low) as gain_low, coalesce(corrected_high, over_high) as gain_high,
    if(corrected_low <> over_low, true, null) as corrected,
    detectable + coalesce((corrected_high - corrected_low) - (over_high - over_low), 0) / 2 as detectable_gain, p_adjusted, holds_for, n, place, number
from named join arms using (arm) where objective <> 'as the study has it'
order by row desc, place, number

/*
section = "answer"
place = 20
title = "Held-out accuracy by objective, and the difference from the study's own"
caption = """
Differences are rounded after they are computed. The table of all arms has fewer of these rollouts, so its accuracy may \
differ slightly."""
sources = ["objectives"]
[chart]
kind = "levels"
[legend]
before_rate = "Hollow: before training."
after_rate = "Filled: trained with the objective."
gain_of_pair = """
Below: how much more an objective gained than the study's own (its training.advantage and rewards), with its 95 % \
interval."""
*/
-- One row per arm and objective, and per objective against the study's own.
with named as (
    select *, if((select count(distinct arm) from objectives) > 1, arm || ' · ', '')
        || if(objective = 'as the study has it', 'own objective', objective) as label
    from objectives where metric = 'pass@1')
select 'level' as row, label, arm, null as other, before as before_rate, after as after_rate, change as gain,
    change_low as gain_low, change_high as gain_high, null::double as detectable_gain, null::double as p_adjusted,
    holds_for, n, place
from named join arms using (arm)
union all by name
select 'difference' as row, label || ' − own' as label, arm, objective as other, over_baseline as gain,
    over_low as gain_low, over_high as gain_high, p_adjusted, holds_for, n, place
from named join arms using (arm) where objective <> 'as the study has it'
order by row desc, place, other is not null, label

-- Problems in the variance band and accuracy of two reports (l, r) by arm and phase, with the paired difference.
with tall as (
    select 1 as study, arm, unnest(['before', 'after']) as phase,
        unnest([heldout_before, heldout_after]) as accuracy, variance from l
    union all
    select 2, arm, unnest(['before', 'after']), unnest([heldout_before, heldout_after]), variance from r
),
wide as (
    select arm, phase, avg(accuracy) filter (study = 1) as one, avg(accuracy) filter (study = 2) as other,
        any_value(variance) filter (study = 1) as in_band,
        any_value(variance) filter (study = 2) as in_band_other
    from tall group by all
)
select arm, phase, one, other, difference_pp, difference_pp_low, difference_pp_high, problems,
    in_band, in_band_other, reason
from wide left join paired using (arm, phase)
where one is not null or other is not null
order by arm, phase desc

/*
section = "diversity"
place = 10
title = "Diversity of each problem"
caption = "Each problem under both arms, before training and after, and the means over problems."
sources = ["diversities", "final", "trainings"]
empty = "there is only one arm or one policy, so there is nothing to compare."
[chart]
kind = "pairs"
y = "diversity"
y_name = "diversity"
*/
-- Per problem: two arms' policies of the same phase, first arm against each other one.
with
policies as (
    select m.diversity as ref, f.arm, a.place, s.seed, case when s.adapter is null then 'before' else 'after' end as phase
    from measured m
    join (select distinct ref, arm, adapter from final) f on f.ref = m.final
    join arms a using (arm)
    left join (select distinct ref as adapter, seed from trainings) s using (adapter)
),
measures as (
    select p.*, d.problem_id, d.diversity
    from policies p join diversities d using (ref) where d.diversity is not null and d."window" = 'whole'
)
select
    x.phase, x.arm, y.arm as other, x.seed, x.problem_id, x.diversity, y.diversity as other_diversity,
    avg(x.diversity) over same as mean, avg(y.diversity) over same as other_mean
from measures x
join measures y on x.problem_id = y.problem_id and x.phase = y.phase and x.seed is not distinct from y.seed
    and x.place = 0 and y.place > 0
window same as (partition by x.phase, x.seed, x.arm, y.arm)
order by x.phase = 'after', x.seed, y.place, x.problem_id

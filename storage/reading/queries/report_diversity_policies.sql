/*
section = "diversity"
place = 20
title = "Diversity of each policy"
caption = "Means over problems, with length and accuracy, which confound it."
sources = ["diversities", "final", "trainings"]
*/
-- Means over problems, per policy: diversity of the whole traces beside what confounds it.
-- trace_rate: share of completions in which the scaffold's parser found a trace, which diversity needs.
with
policies as (select ref, arm, step, adapter, count(trace) / count(*) as trace_rate from final group by all),
whole as (select * from diversities where "window" = 'whole')
select
    f.arm, f.step, s.seed, f.trace_rate, count(d.diversity) as n,
    avg(d.diversity) as diversity, avg(d.diversity_correct) as diversity_correct, avg(d.spread) as spread,
    avg(d.per_1000_tokens) as per_1000_tokens, avg(d.per_1000_chars) as per_1000_chars, avg(d.clusters) as clusters,
    avg(d.vendi_of_4) as vendi_of_4, avg(d.coverage) as coverage, avg(d.num_tokens) as num_tokens,
    avg(d.length_cv) as length_cv,
    avg(d.share_correct) as correct_share,
    case when f.trace_rate = 0 then 'every trace is malformed' when count(d.diversity) = 0 then 'no problem has two traces'
    end as reason
from policies f
join arms a using (arm)
join measured m on m.final = f.ref
left join whole d on d.ref = m.diversity
left join (select distinct ref as adapter, seed from trainings) s using (adapter)
group by f.ref, f.arm, a.place, f.step, s.seed, f.trace_rate
order by a.place, s.seed nulls first, f.step

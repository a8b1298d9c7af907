-- Means over problems, per policy: diversity of the whole traces beside what confounds it.
-- trace_rate: completions in which the scaffold's parser found a trace, of all.
with
policies as (select ref, arm, adapter, count(trace) / count(*) as trace_rate from final group by all)
select
    d.arm, d.step, s.seed, any_value(f.trace_rate) as trace_rate, count(d.diversity) as n,
    avg(d.diversity) as diversity, avg(d.diversity_correct) as diversity_correct, avg(d.spread) as spread,
    avg(d.per_1000_tokens) as per_1000_tokens, avg(d.per_1000_chars) as per_1000_chars, avg(d.clusters) as clusters,
    avg(d.vendi) as vendi, avg(d.coverage) as coverage, avg(d.num_tokens) as num_tokens, avg(d.length_cv) as length_cv,
    avg(d.share_correct) as correct_share
from diversities d
join arms a using (arm)
left join measured m on m.diversity = d.ref
left join policies f on f.ref = m.final
left join (select distinct ref as adapter, seed from trainings) s using (adapter)
where d."window" = 'whole'
group by d.arm, a.place, d.step, s.seed
order by a.place, s.seed nulls first, d.step

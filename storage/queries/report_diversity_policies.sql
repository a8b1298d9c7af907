-- Means over problems, per policy: diversity beside what confounds it.
select
    d.arm, d.step, s.seed, d."window", count(d.diversity) as n, avg(d.diversity) as diversity,
    avg(d.diversity_correct) as diversity_correct, avg(d.per_1000_tokens) as per_1000_tokens,
    avg(d.per_1000_chars) as per_1000_chars, avg(d.clusters) as clusters, avg(d.vendi) as vendi,
    avg(d.coverage) as coverage, avg(d.num_tokens) as num_tokens, avg(d.length_cv) as length_cv,
    avg(d.share_correct) as correct_share
from diversities d
join arms a using (arm)
left join measured m on m.diversity = d.ref
left join (select distinct ref, adapter from final) f on f.ref = m.final
left join (select distinct ref as adapter, seed from trainings) s using (adapter)
group by d.arm, a.place, d.step, s.seed, d."window"
order by a.place, s.seed nulls first, d.step, d."window"

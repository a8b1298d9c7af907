/*
section = "result"
place = 15
title = "Form: rollouts without an answer, without valid tags, cut off"
caption = """
Upper limits of accuracy. no_answer, invalid_tags, truncated: shares of rollouts at screening and on the held-out \
problems, at the start and with the last adapter. no_answer_truncated: number of rollouts without an answer that were \
cut off at max_tokens. taught: an adapter was used, from a lesson or from training."""
sources = ["screenings", "final"]
*/
-- One row per arm, purpose and seed of the adapter: shares of its rollouts with an answer and valid tags.
with seeds as (select distinct ref as adapter, seed from trainings),
sampled as (
    select arm, adapter, 'screening' as sampled, null::bigint as seed, 0 as stand, verdict, tag_valid, finish, correct
    from screenings
    union all
    select arm, adapter, case when s.adapter is null then 'held-out, start' else 'held-out, trained' end, s.seed,
        case when s.adapter is null then 1 else 2 end, verdict, tag_valid, finish, correct
    from final left join seeds s using (adapter)
)
select
    a.arm, s.sampled, s.seed, count(*) as rollouts, avg(correct::int) as accuracy,
    avg((verdict = 'no_answer')::int) as no_answer, avg((not tag_valid)::int) as invalid_tags,
    avg((finish = 'length')::int) as truncated,
    count(*) filter (verdict = 'no_answer' and finish = 'length') as no_answer_truncated, count(s.adapter) > 0 as taught
from sampled s join arms a using (arm)
group by a.arm, a.place, s.sampled, s.seed, s.stand
order by a.place, s.stand, s.seed

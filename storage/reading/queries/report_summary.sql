/*
section = "result"
place = 10
title = "All arms"
caption = """
Problems by band at screening; held-out accuracy at the start and with the last adapter (not the best one); the \
gain, whose interval is over problems and holds for this adapter, not for the recipe; diversity. Tokens per correct \
answer, and shares of rollouts without an answer, without valid tags, or truncated, are of the last adapter, or else \
of the start. updates: optimiser updates; 0 means that nothing was learnt."""
sources = ["bands", "final", "trainings", "diversities", "contrasts"]
*/
-- One row per arm and seed: its bands, and the held-out problems before and after training.
-- A rate is the mean over problems of the share of correct rollouts. The interval of the gain is over problems
-- (storage/estimates.py): with one seed that of pass@1 of the same rollouts, which counts near-duplicates once; with
-- several, which pass@1 combines, one for each seed.
with
per_problem as (
    select ref, arm, adapter, problem_id, avg(correct::int) as rate, sum(correct::int) as correct,
        sum(num_tokens) as tokens, count(logprob_sum) as logprobs, count(*) as rollouts, sum((verdict = 'no_answer')::int) as unanswered,
        sum((not tag_valid)::int) as untagged, sum((finish = 'length')::int) as cut
    from final group by all
),
spread as (
    select m.final as ref, avg(d.diversity) as diversity
    from diversities d join measured m on m.diversity = d.ref where d."window" = 'whole' group by m.final
),
seeds as (
    select ref as adapter, any_value(seed) as seed, sum(updates)::bigint as updates from trainings group by ref
),
policy as (
    select p.ref, p.arm, s.seed, s.updates, s.adapter is not null as trained, avg(p.rate) as rate,
        -- of imported rollouts without counts num_tokens has words, and the table of tokens is not made
        case when sum(p.logprobs) > 0 or exists (from tokens) then sum(p.tokens) / nullif(sum(p.correct), 0) end
            as tokens_per_correct, any_value(d.diversity) as diversity,
        sum(p.unanswered) / sum(p.rollouts) as no_answer, sum(p.untagged) / sum(p.rollouts) as invalid_tags,
        sum(p.cut) / sum(p.rollouts) as truncated
    from per_problem p left join seeds s using (adapter) left join spread d using (ref)
    group by all
),
banded as (
    select arm, count(*) as problems, count(*) filter (is_all_zero(band)) as all_zero,
        count(*) filter (is_variance(band)) as variance, count(*) filter (is_all_one(band)) as all_one
    from bands group by arm
),
differences as (
    select a.arm, s.seed, problem_id, a.rate - b.rate as difference
    from per_problem a join seeds s using (adapter) join per_problem b using (arm, problem_id)
    where (b.adapter is null or b.adapter not in (select adapter from seeds))
        and (select count(distinct seed) from trainings) > 1
),
drawn as (select arm, seed, interval_over_problems(list(difference order by problem_id)) as ends from differences group by arm, seed),
gains as (
    select arm, seed, ends[1] as gain_low, ends[2] as gain_high from drawn
    union all
    select arm, (select any_value(seed) from trainings), any_value(0 - high), any_value(0 - low)
    from contrasts  -- includes arms that evaluate another arm's adapter
    where metric = 'gap' and k = 1 and source = 'all' and arm = other
        and (select count(distinct seed) from trainings) = 1
    group by arm having count(*) = 1
)
select
    a.arm, t.seed, b.problems, b.all_zero, b.variance, b.all_one,
    o.rate as heldout_before, t.rate as heldout_after, t.rate - o.rate as gain,
    g.gain_low, g.gain_high,
    o.diversity as diversity_before, t.diversity as diversity_after,
    coalesce(t.tokens_per_correct, o.tokens_per_correct) as tokens_per_correct,
    coalesce(t.no_answer, o.no_answer) as no_answer, coalesce(t.invalid_tags, o.invalid_tags) as invalid_tags,
    coalesce(t.truncated, o.truncated) as truncated,
    t.updates
from arms a
left join banded b using (arm)
left join policy o on o.arm = a.arm and not o.trained
left join policy t on t.arm = a.arm and t.trained
left join gains g on g.arm = a.arm and g.seed = t.seed
order by a.place, t.seed

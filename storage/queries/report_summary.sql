-- One row per arm and seed: its bands, and the held-out problems before and after training.
-- A rate is the mean over problems of the share of correct rollouts; the interval of the gain is the curves' own.
with
per_problem as (
    select arm, adapter, problem_id, avg(correct::int) as rate, sum(correct::int) as correct, sum(num_tokens) as tokens
    from final group by all
),
policy as (
    select arm, adapter, avg(rate) as rate, sum(tokens) / nullif(sum(correct), 0) as tokens_per_correct
    from per_problem group by all
),
banded as (
    select arm, count(*) as problems, count(*) filter (band = 'all_zero') as all_zero,
        count(*) filter (band = 'variance') as variance, count(*) filter (band = 'all_one') as all_one
    from bands group by arm
),
seeds as (select distinct ref as adapter, seed from trainings)
select
    a.arm, s.seed, b.problems, b.all_zero, b.variance, b.all_one,
    before.rate as heldout_before, trained.rate as heldout_after, trained.rate - before.rate as gain,
    null::double as gain_low, null::double as gain_high,
    null::double as diversity_before, null::double as diversity_after,
    coalesce(trained.tokens_per_correct, before.tokens_per_correct) as tokens_per_correct
from arms a
left join banded b using (arm)
left join policy before on before.arm = a.arm and before.adapter is null
left join policy trained on trained.arm = a.arm and trained.adapter is not null
left join seeds s on s.adapter = trained.adapter
order by a.place, s.seed

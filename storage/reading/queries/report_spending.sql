/*
section = "spending"
place = 10
title = "Rollouts and tokens"
caption = "Rollouts and tokens of each purpose. Rollouts that two purposes share were paid for once."
sources = ["screenings", "evaluations", "final", "sliced", "trainings"]
*/
-- Rollouts and completion tokens by purpose. A rollout of several purposes is counted in each; the ledger paid once.
with
used as (
    select 'screening' as purpose, arm, correct, num_tokens, num_prompt_tokens, finish from screenings
    union all
    select 'held-out curve', arm, correct, num_tokens, num_prompt_tokens, finish from evaluations
    union all
    select 'measurement', arm, correct, num_tokens, num_prompt_tokens, finish from final
    union all
    select 'benchmarks', arm, correct, num_tokens, num_prompt_tokens, finish from sliced
)
select
    purpose, arm, count(*) as rollouts, sum(num_tokens)::bigint as completion_tokens,
    sum(num_prompt_tokens)::bigint as prompt_tokens, avg((finish = 'length')::int) as truncated,
    sum(num_tokens) / nullif(sum(correct::int), 0) as tokens_per_correct
from used group by purpose, arm
union all
select 'training', arm, null, sum(num_tokens)::bigint, null, sum(truncated * num_tokens) / sum(num_tokens), null
from trainings group by arm
order by purpose, arm

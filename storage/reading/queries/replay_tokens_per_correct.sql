-- Tokens per correct answer from mean lengths and counts per problem.
select arm, count(*) as n, sum(n)::bigint as rollouts, sum(num_correct)::bigint as num_correct,
       sum(num_tokens * n) / sum(n) as mean_tokens,
       sum(num_tokens * n) / nullif(sum(num_correct), 0) as tokens_per_correct
from lengths group by arm order by arm

-- The progress of every running training.
select ref, arm, seed, max(step) as steps, arg_max(correct_mean, step) as correct_mean,
    arg_max(live_groups, step) as live_groups, sum(num_tokens)::bigint as num_tokens
from steps group by ref, arm, seed order by ref

/*
section = "tokens"
place = 10
title = "Tokens per correct answer"
caption = "All completion tokens over all correct answers."
sources = ["tokens"]
*/
-- Total completion tokens over correct answers, per policy; truncation beside it.
select arm, step, source, estimate as tokens_per_correct, low as tokens_per_correct_low,
    high as tokens_per_correct_high, mean as tokens_per_rollout, truncated, num_correct, num_tokens, n, holds_for, reason
from tokens join arms using (arm)
where metric = 'tokens_per_correct'
order by source <> 'all', source, place, step

/*
section = "tokens"
place = 15
title = "Tokens per correct answer, arm over other"
caption = "On the problems that both policies have. Below 1 the arm is cheaper."
sources = ["tokens"]
empty = "there is only one policy, so there is nothing to compare."
*/
-- Tokens per correct answer of one policy over that of another.
select arm, step, other, other_step, estimate as cost_ratio, low as cost_ratio_low, high as cost_ratio_high, n, seeds,
    holds_for, reason
from tokens
where metric = 'tokens_per_correct_ratio' and source = 'all'
order by arm, step, other, other_step

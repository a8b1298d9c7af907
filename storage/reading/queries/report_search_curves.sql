/*
section = "search"
place = 10
title = "One answer within a budget of tokens"
caption = """
Share of problems answered correctly within a number of tokens per problem, prompts and completions; one chart per \
method. oracle (pass@k) is the upper bound of any selection among rollouts: it knows the golds. pass@1 is one \
rollout's answer. A round counts once all its tokens are within the budget. Shaded: 95 % interval over problems and \
seeds."""
sources = ["search_curves"]
empty = "no search method was requested (search.methods)."
[chart]
kind = "lines"
x = "budget"
y = "right_rate"
x_name = "tokens a problem"
y_name = "right answers"
log_x = true
each = "method"
*/
-- Accuracy within each budget, by policy and method; the ceiling and pass@1 beside them.
select series, method, arm, step, budget, estimate as right_rate, low as right_rate_low, high as right_rate_high,
    tokens, rollouts, n, holds_for, reason
from search_curves join arms using (arm)
where metric = 'accuracy'
order by series = 'method', method, place, step, budget

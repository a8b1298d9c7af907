/*
section = "search"
place = 20
title = "The best method at each budget"
caption = """
The highest estimate among methods. It is selected after the fact, so its lead is no test, and its rate is biased \
upward if several methods are close. elsewhere: the rate with ten-fold cross-validation, choosing the best method on \
nine tenths of the problems. ceiling: the oracle's rate."""
sources = ["search_curves"]
empty = "no search method was requested (search.methods)."
*/
-- For each policy the method with the most right answers within each budget, beside the oracle's rate.
with ranked as (
    select c.*, place, row_number() over (partition by arm, step, budget order by estimate desc, tokens, method) as rank
    from search_curves c join arms using (arm) where metric = 'accuracy' and series = 'method'),
elsewhere as (from search_curves where metric = 'best'),
ceiling as (select arm, step, budget, estimate from search_curves where metric = 'accuracy' and series = 'ceiling')
select arm, step, budget, r.method, r.estimate as right_rate, r.low as right_rate_low, r.high as right_rate_high,
    e.estimate as elsewhere_rate, e.low as elsewhere_rate_low, e.high as elsewhere_rate_high,
    r.tokens, c.estimate as ceiling_rate, r.n, r.holds_for
from ranked r left join elsewhere e using (arm, step, budget) left join ceiling c using (arm, step, budget)
where rank = 1
order by place, step, budget

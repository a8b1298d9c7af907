/*
section = "search"
place = 20
title = "The best method at each budget"
caption = """
The highest estimate among methods; chosen after the fact, so that its lead over the second is no test, and its rate is \
too high where several are close. elsewhere: the rate of choosing the best on nine tenths of the problems, counted on \
the others, ten times. ceiling: the oracle's."""
sources = ["search_curves"]
empty = "no method of search was asked for (search.methods)."
*/
-- Of each policy the method with the most right answers within each budget, and what the ceiling leaves.
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

/*
section = "search"
place = 30
title = "Area under the curve, and what a doubling of the budget adds"
caption = """
Area: share of right answers, averaged over all budgets from 0 to the largest. Slope: increase per doubling of the \
budget, from the smallest to the largest; if arms differ in it, width pays at test time. If few problems have a \
round within the smallest budget (reason), the slope mostly measures when the first answer comes."""
sources = ["search_curves"]
empty = "no search method was requested (search.methods)."
*/
-- Area and slope of every policy under every method.
select a.series, a.method, a.arm, a.step, a.budget, a.estimate as area_rate, a.low as area_rate_low,
    a.high as area_rate_high, s.estimate as doubling_gain, s.low as doubling_gain_low, s.high as doubling_gain_high,
    a.n, a.holds_for, s.reason
from (from search_curves where metric = 'area') a join arms using (arm)
    left join (from search_curves where metric = 'slope') s
        on s.arm = a.arm and s.step = a.step and s.method = a.method
order by a.series = 'method', a.method, place, a.step

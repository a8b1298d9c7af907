/*
section = "search"
place = 30
title = "Area under the curve, and what a doubling of the budget adds"
caption = """
Area: right answers averaged over every budget from 0 to the largest. Slope: right answers gained with each doubling, \
from the smallest budget to the largest: where arms differ in it, width pays at test time. Where few problems have a \
round within the smallest budget (reason) it is that of answering at all, and steeper for whoever spends more on one."""
sources = ["search_curves"]
empty = "no method of search was asked for (search.methods)."
*/
-- Area and slope of every policy under every method.
select a.series, a.method, a.arm, a.step, a.budget, a.estimate as area_rate, a.low as area_rate_low,
    a.high as area_rate_high, s.estimate as doubling_gain, s.low as doubling_gain_low, s.high as doubling_gain_high,
    a.n, a.holds_for, s.reason
from (from search_curves where metric = 'area') a join arms using (arm)
    left join (from search_curves where metric = 'slope') s
        on s.arm = a.arm and s.step = a.step and s.method = a.method
order by a.series = 'method', a.method, place, a.step

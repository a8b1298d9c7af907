/*
section = "search"
place = 50
title = "Arms and training under one method, paired by problem"
caption = """
First policy minus the other, under the same method: right answers within the largest budget, area, and slope \
(increase per doubling of the budget). p_adjusted: Benjamini-Hochberg, with slopes as a separate family."""
sources = ["search_contrasts"]
empty = "no search method was requested (search.methods)."
*/
-- Every two policies under each method, the oracle and pass@1.
select metric, budget, method, c.arm, step, other, other_step, estimate as right_gain, low as right_gain_low,
    high as right_gain_high, p_value, p_adjusted, family, n, holds_for, reason
from search_contrasts c join arms using (arm)
where method = other_method and (metric <> 'accuracy' or budget = (select max(budget) from search_contrasts))
order by metric desc, method, place, step, other, other_step

/*
section = "search"
place = 50
title = "Arms and training under one method, paired by problem"
caption = """
The first policy less the other, under the same method: right answers within the largest budget, area, and slope, which \
is how much more a doubling of the budget gives the first. p_adjusted: Benjamini and Hochberg, slopes as a family of \
their own."""
sources = ["search_contrasts"]
empty = "no method of search was asked for (search.methods)."
*/
-- Every two policies under each method, the oracle's selection and pass@1 too.
select metric, budget, method, c.arm, step, other, other_step, estimate as right_gain, low as right_gain_low,
    high as right_gain_high, p_value, p_adjusted, family, n, holds_for, reason
from search_contrasts c join arms using (arm)
where method = other_method and (metric <> 'accuracy' or budget = (select max(budget) from search_contrasts))
order by metric desc, method, place, step, other, other_step

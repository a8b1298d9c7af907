/*
section = "search"
place = 40
title = "Methods of one policy, paired by problem"
caption = """
Right answers of the first method minus those of the other within the largest budget, and the difference of areas. \
p_adjusted: Benjamini-Hochberg over all pairs of methods."""
sources = ["search_contrasts"]
empty = "no search method was requested (search.methods)."
*/
-- Every two methods of each policy at equal tokens.
select metric, budget, arm, step, method, other_method, estimate as right_gain,
    coalesce(corrected_low, low) as right_gain_low, coalesce(corrected_high, high) as right_gain_high, p_value, p_adjusted, family, n, holds_for, reason
from search_contrasts join arms using (arm)
where method <> other_method and (metric = 'area' or (metric = 'accuracy' and budget = (select max(budget) from search_contrasts)))
order by metric, place, step, method, other_method

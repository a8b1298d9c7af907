/*
section = "bands"
place = 40
title = "What the cross-tab says"
caption = """
ratio and shared/only: of the variance bands; mcnemar: is being in the variance band independent of the arm; \
stuart_maxwell: do both arms have as many problems of each band; weighted_kappa: agreement beyond \
chance, of which no interval is made."""
sources = ["crosstab"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- What two arms' bands say together, on their common problems.
select metric, arm, other, count, estimate, low, high, p_value, p_adjusted, family, n, reason
from crosstab
where source = 'all' and other is not null and metric <> 'cell'
order by arm, other, metric

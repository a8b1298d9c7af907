/*
section = "bands"
place = 40
title = "Tests of two arms' bands"
caption = """
ratio, shared, only: sizes and overlap of the variance bands; mcnemar: is membership of the variance band \
independent of the arm; stuart_maxwell: do both arms have equally many problems of each band; weighted_kappa: \
agreement beyond chance, without an interval."""
sources = ["crosstab"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Tests of two arms' bands on their common problems.
select metric, arm, other, count, estimate, low, high, p_value, p_adjusted, family, n, reason
from crosstab
where source = 'all' and other is not null and metric <> 'cell'
order by arm, other, metric

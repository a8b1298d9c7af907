/*
section = "diversity"
place = 86
title = "Correlations of the measures of width"
caption = """
Spearman's rank correlation over problems of every two measures: minimum, mean and maximum over the policies, and \
the number of policies whose interval excludes 0."""
sources = ["widths"]
empty = "width was not measured in this run."
*/
-- Rank correlations of every two measures of width, over policies. The table `widths` has each with its interval.
select metric, "partition", other, other_partition, min(estimate) as least, avg(estimate) as mean, max(estimate) as most,
    count(*) filter (low > 0 or high < 0) as told_from_0, count(estimate) as policies,
    min(reason) filter (low is null) as reason
from widths join arms using (arm)
where other not in ('length', 'accuracy') and metric not in ('length', 'accuracy')
group by metric, "partition", other, other_partition
order by metric, "partition", other, other_partition

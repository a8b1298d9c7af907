/*
section = "diversity"
place = 86
title = "Measures of width beside each other"
caption = """
Spearman's rank correlation over problems of every two measures, over the policies: the least, the mean, the most, and in \
how many policies its interval leaves 0 out."""
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

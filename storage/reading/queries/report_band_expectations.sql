-- Beta-binomial expectations: groups with a gradient at the training group size, and bands that are luck.
select arm, metric, band, count, estimate, n, reason
from crosstab
where source = 'all' and other is null and metric <> 'count'
order by arm, metric, band

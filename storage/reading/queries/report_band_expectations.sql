-- Beta-binomial expectations: groups with a gradient at the training group size, and bands that are luck.
select arm, question, band, count, estimate, n, reason
from crosstab
where source = 'all' and other is null and question <> 'count'
order by arm, question, band

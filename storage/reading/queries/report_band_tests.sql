-- What two arms' bands say together, on their common problems.
select metric, arm, other, count, estimate, p_value, n, reason
from crosstab
where source = 'all' and other is not null and metric <> 'cell'
order by arm, other, metric

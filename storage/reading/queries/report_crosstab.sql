-- Cells of every two arms' cross-tab, on their common problems.
select arm, other, band, other_band, count, n, reason
from crosstab
where metric = 'cell'
order by arm, other,
    list_position(['all_zero', 'variance', 'all_one'], band),
    list_position(['all_zero', 'variance', 'all_one'], other_band)

-- Cells of every two arms' cross-tab, on their common problems.
select arm, other, band, other_band, count, n, reason
from crosstab
where metric = 'cell'
order by arm, other,
    list_position(bands(), band),
    list_position(bands(), other_band)

/*
section = "bands"
place = 30
title = "Bands of two arms"
caption = "Each problem by its band under one arm (rows) and under the other (columns)."
sources = ["crosstab"]
empty = "there is only one arm or one policy, so there is nothing to compare."
[chart]
kind = "heat"
*/
-- Cells of every two arms' cross-tab, on their common problems.
select arm, other, band, other_band, count, n, reason
from crosstab
where metric = 'cell'
order by arm, other,
    list_position(bands(), band),
    list_position(bands(), other_band)

/*
section = "bands"
place = 20
title = "Bands by source"
caption = "Problems by band for each competition set."
sources = ["bands"]
[chart]
kind = "bars"
labels = ["source", "arm"]
*/
-- Problems by band, per source and arm.
select
    b.source, a.arm, count(*) as problems,
    count(*) filter (is_all_zero(b.band)) as all_zero,
    count(*) filter (is_variance(b.band)) as variance,
    count(*) filter (is_all_one(b.band)) as all_one,
    avg(is_variance(b.band)::int) as variance_share
from bands b join arms a using (arm)
group by b.source, a.arm, a.place
order by b.source, a.place

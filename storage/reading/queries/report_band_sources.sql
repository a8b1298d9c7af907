/*
section = "bands"
place = 20
title = "Bands by source"
caption = "The same, by competition set."
sources = ["bands"]
[chart]
kind = "bars"
labels = ["source", "arm"]
*/
-- Problems by band, per source and arm.
select
    b.source, a.arm, count(*) as problems,
    count(*) filter (b.band = 'all_zero') as all_zero,
    count(*) filter (b.band = 'variance') as variance,
    count(*) filter (b.band = 'all_one') as all_one,
    avg((b.band = 'variance')::int) as variance_share
from bands b join arms a using (arm)
group by b.source, a.arm, a.place
order by b.source, a.place

/*
section = "bands"
place = 10
title = "Problems by band"
caption = "All problems of the pool, by how many rollouts of the screening group were correct."
sources = ["bands"]
[chart]
kind = "bars"
labels = ["arm"]
*/
-- Problems by band, per arm.
select
    a.arm, max(b.group_size) as group_size, count(*) as problems,
    count(*) filter (b.band = 'all_zero') as all_zero,
    count(*) filter (b.band = 'variance') as variance,
    count(*) filter (b.band = 'all_one') as all_one,
    avg((b.band = 'variance')::int) as variance_share
from bands b join arms a using (arm)
group by a.arm, a.place
order by a.place

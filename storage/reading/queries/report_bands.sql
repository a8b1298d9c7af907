/*
section = "bands"
place = 10
title = "Problems by band"
caption = "All problems of the pool, by the number of correct rollouts in their screening group."
sources = ["bands"]
[chart]
kind = "bars"
labels = ["arm"]
*/
-- Problems by band, per arm.
select
    a.arm, max(b.group_size) as group_size, count(*) as problems,
    count(*) filter (is_all_zero(b.band)) as all_zero,
    count(*) filter (is_variance(b.band)) as variance,
    count(*) filter (is_all_one(b.band)) as all_one,
    avg(is_variance(b.band)::int) as variance_share
from bands b join arms a using (arm)
group by a.arm, a.place
order by a.place

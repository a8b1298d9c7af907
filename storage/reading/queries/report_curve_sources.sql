/*
section = "training"
place = 80
title = "Curve: held-out accuracy by source"
caption = "At the first and the last evaluated step. Sources with fewer than 30 problems are left out."
sources = ["curves"]
empty = "no source has 30 problems or more."
*/
-- Held-out accuracy by source, at the first and the last evaluated step of each arm.
with
ranged as (select arm, min(step) as first, max(step) as last from curves where series = 'heldout' group by arm)
select c.source, c.arm, c.step, c.estimate as heldout_rate, c.low as heldout_rate_low, c.high as heldout_rate_high,
    c.n, c.method, c.holds_for, c.reason
from curves c join ranged r using (arm) join arms a using (arm)
where c.series = 'heldout' and c.source <> 'all' and c.n >= 30 and c.step in (r.first, r.last)
order by c.source, a.place, c.step

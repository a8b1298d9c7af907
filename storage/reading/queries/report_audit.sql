/*
section = "audit"
place = 10
title = "Findings about the design"
caption = "Properties of the design that weaken or invalidate a comparison above."
sources = ["audit"]
empty = "no finding: every design check passed."
*/
-- Findings of the audit about the designs. One that several trainings share is one row.
select code, fact, min(place) || if(count(*) > 1, ' and ' || (count(*) - 1) || ' more', '') as place, inference,
    max(value) as value, query
from (select *, row_number() over () as place_in_audit from audit)
group by code, fact, inference, query order by min(place_in_audit)

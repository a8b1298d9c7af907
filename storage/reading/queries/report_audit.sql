/*
section = "audit"
place = 10
title = "Findings about the design"
caption = "Properties of the design that weaken or invalidate a comparison above."
sources = ["audit"]
empty = "no finding: every design check passed."
*/
-- Findings of the audit about the designs.
select * exclude (ref) from audit

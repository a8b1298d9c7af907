/*
section = "audit"
place = 10
title = "Findings about the design"
caption = "What could make a comparison above mean less than it seems."
sources = ["audit"]
empty = "no finding: every design check passed."
*/
-- What the audit found in the designs.
select * exclude (ref) from audit

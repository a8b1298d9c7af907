/*
section = "diversity"
place = 50
title = "Floor and ceiling"
caption = """
floor: distance between a trace and its reworded version; within: between two traces of one problem; between: \
between traces of two problems, as after shuffling problems; position: place of within between floor (0) and ceiling \
(1)."""
sources = ["ceilings"]
empty = "it was not measured in this run."
*/
-- Mean distance of two traces of one problem, between its floor (rewording) and its ceiling (shuffled problems).
select arm, step, seed, "window", floor, within, between, position, coverage, n, problems, reworded, reason
from ceilings join arms using (arm)
order by "window" <> 'whole', "window", place, step, seed

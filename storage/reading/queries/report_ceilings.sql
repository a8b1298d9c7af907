/*
section = "diversity"
place = 50
title = "Floor and ceiling"
caption = """
floor: distance of a trace from itself in other words; within: of two traces of one problem; between: of two \
problems, what shuffling the problems would give; position: where within lies from floor to ceiling."""
sources = ["ceilings"]
empty = "they were not measured in this run."
*/
-- Mean distance of two traces of one problem, between what means nothing and what shuffling the problems would give.
select arm, step, seed, "window", floor, within, between, position, coverage, n, problems, reworded, reason
from ceilings join arms using (arm)
order by "window" <> 'whole', "window", place, step, seed

-- Mean distance of two traces of one problem, between what means nothing and what shuffling the problems would give.
select arm, step, seed, "window", floor, within, between, position, coverage, n, problems, reworded, reason
from ceilings join arms using (arm)
order by "window" <> 'whole', "window", place, step, seed

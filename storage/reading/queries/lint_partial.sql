-- Runs that stopped before their planned problems.
select 'partial_run' as code,
       run || ' evaluated ' || num_problems || ' of ' || planned_problems || ' planned problems' as what, place,
       'what was left out was not left out at random' as matter, num_problems / planned_problems as value
from designs where num_problems < planned_problems
order by all

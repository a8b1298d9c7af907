-- Runs that stopped before their planned problems.
select 'partial_run' as code,
       run || ' evaluated ' || num_problems || ' of ' || planned_problems || ' planned problems' as fact, place,
       'whether the missing problems are like the others is not known' as inference, num_problems / planned_problems as value
from designs where num_problems < planned_problems
order by all

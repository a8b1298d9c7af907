-- Trends that depend on their last point.
select 'trend' as code,
       series || ' changes by ' || printf('%+.2f', change) || ' from step ' || first_step || ' to step ' || last_step || ', by '
       || printf('%+.2f', change_without_last) || ' to step ' || before_step || '; its slope by step is '
       || printf('%.4f', slope) || ', without the last point ' || printf('%.4f', slope_without_last) as fact,
       place, 'how much it grows rests on one point: one more evaluation could take it away' as inference,
       change_without_last / nullif(change, 0) as value
from trends where abs(change_without_last) < abs(change) / 2
order by all

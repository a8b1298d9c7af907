-- Intervals over rollouts as if rollouts of one problem were independent.
select 'rollouts_as_independent' as code,
       figure || ': the printed interval [' || printf('%.3f', low) || ', ' || printf('%.3f', high) || '] counts ' || n
       || ' rollouts; over its ' || problems || ' problems it is [' || printf('%.3f', low_problems) || ', '
       || printf('%.3f', high_problems) || ']' as fact,
       place, 'the problem is the unit: ' || printf('%.1f', (high_problems - low_problems) / (high - low)) || ' times as wide'
           as inference,
       (high_problems - low_problems) / (high - low) as value
from printed_intervals where (high_problems - low_problems) > 1.25 * (high - low)
order by value desc, figure

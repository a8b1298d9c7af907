-- Trainings that executed fewer steps than requested, or were interrupted.
select 'steps' as code, run || ' was asked for ' || requested || ' steps and executed ' || executed || ' (' || reason || ')' as fact,
       place, 'figures of this training may be of fewer updates than its settings suggest' as inference,
       executed::double / requested as value
from stops where executed < requested
union all
select 'steps', run || ' stopped at step ' || stopped_at || ' of ' || requested || ' (' || reason || '), went on from step ' || resumed_from
       || ' and executed ' || executed,
       place, 'steps after ' || resumed_from || ' were begun twice; figures of them may be of either time',
       stopped_at::double / requested
from stops where stopped_at > resumed_from
order by all

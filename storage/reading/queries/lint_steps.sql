-- Trainings that executed fewer steps than were requested.
select 'steps' as code, run || ' was asked for ' || requested || ' steps and executed ' || executed || ' (' || reason || ')' as fact,
       place, 'figures of this training may be of fewer updates than its settings suggest' as inference,
       executed::double / requested as value
from stops where executed < requested
order by all

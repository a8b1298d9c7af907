-- The reported checkpoint is not the end of training.
select 'last_step' as code,
       arm || ' trained for ' || steps || ' steps but was last evaluated at step ' || coalesce(last_evaluated::varchar, 'none')
           as fact,
       place, 'what is reported is not the policy that training ended with, whose accuracy is not known'
           as inference,
       (steps - coalesce(last_evaluated, 0))::double as value
from designs where role = 'training' and coalesce(last_evaluated, -1) < steps
order by all

-- The reported checkpoint is not the end of training.
select 'last_step' as code,
       arm || ' trained for ' || steps || ' steps but was last evaluated at step ' || coalesce(last_evaluated::varchar, 'none')
           as what,
       place, 'the result is that of a checkpoint chosen after the fact; the largest of several noisy points is too high'
           as matter,
       (steps - coalesce(last_evaluated, 0))::double as value
from designs where role = 'training' and coalesce(last_evaluated, -1) < steps
order by all

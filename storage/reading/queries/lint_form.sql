-- Arms that rarely answer, or rarely in the requested form: their accuracy does not measure what they can solve.
select 'form' as code,
       printf('%.1f', 100 * no_answer) || ' % of the ' || rollouts || ' rollouts of ' || arm || ' on ' || problems
           || ' gave no answer, ' || printf('%.1f', 100 * invalid_tags) || ' % are not in its form' as fact,
       place, 'accuracy, bands and tokens per correct answer tell how often it answers in form, not what it can solve'
           as inference,
       greatest(no_answer, invalid_tags) as value
from form where no_answer > 0.1 or invalid_tags > 0.5
order by value desc, fact

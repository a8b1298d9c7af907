-- Evaluated problems that a training pool holds too, counted over the problems that were evaluated.
select 'evaluated_in_training' as code,
       count || ' of the ' || n || ' problems of ' || problems || ' that were evaluated stand in ' || pool as fact,
       place, 'a policy that was trained on that pool cannot be tested on them; of one that was not they say what they said'
           as inference,
       count::double / n as value
from evaluated where count > 0
order by all

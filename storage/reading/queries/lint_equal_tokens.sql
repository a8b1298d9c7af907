-- An arm with a lower cost per correct answer that solves fewer problems at equal tokens.
select 'equal_tokens' as code,
       arm || ' solves ' || printf('%.2f', estimate) || ' of ' || problems || ' with ' || k || ' rollouts (' || tokens::bigint
       || ' tokens a problem), ' || other || ' ' || printf('%.2f', other_estimate) || ' with ' || other_k || ' ('
       || other_tokens::bigint || ')' as fact,
       place, 'tokens a correct answer and problems solved at equal tokens point in opposite directions' as inference,
       estimate - other_estimate as value
from equal_tokens where estimate < other_estimate and other_tokens <= tokens
order by all

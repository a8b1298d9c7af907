-- Near-duplicates across train and held-out.
select 'near_duplicate' as code,
       source_id || ' is held out and ' || other_source_id || ', its ' || kind || ' duplicate ('
       || printf('%.2f', similarity) || '), is not' || coalesce(': ' || trains, '') as what,
       place, 'a held-out problem that training has seen is no test' as matter, similarity as value
from leaks order by similarity desc, source_id, other_source_id

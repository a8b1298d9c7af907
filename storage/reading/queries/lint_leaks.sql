-- Near-duplicates across train and held-out.
select 'near_duplicate' as code,
       source_id || ' is held out and ' || other_source_id || ', its ' || kind || ' duplicate ('
       || printf('%.2f', similarity) || '), is not' || coalesce(': ' || trains, '') as fact,
       place, case when contains(trains, '_train') or trains is null
            then 'a held-out problem whose twin is trained on is no test' else 'no arm trained on it: no harm in this run' end
           as inference, similarity as value
from leaks order by similarity desc, source_id, other_source_id

-- Compared arms that were trained with other settings.
select 'hyperparameters' as code,
       a.arm || ' was trained with ' || array_to_string(list_filter(a.settings, lambda x: not list_contains(b.settings, x)), ', ')
       || ' and ' || b.arm || ' with ' || array_to_string(list_filter(b.settings, lambda x: not list_contains(a.settings, x)), ', ') as fact,
       string_agg(distinct a.place || ', ' || b.place, '; ' order by a.place || ', ' || b.place) as place,
       'the arms differ in how they were trained, not in their scaffold alone' as inference, null::double as value
from recipes a join recipes b on a.arm < b.arm and a.settings <> b.settings
group by a.arm, b.arm, a.settings, b.settings order by fact

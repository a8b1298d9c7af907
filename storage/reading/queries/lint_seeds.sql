-- One training per arm.
select 'single_seed' as code, arm || ' was trained once' as fact, string_agg(place, ', ' order by place) as place,
       'intervals are over problems and say nothing of what another seed would give' as inference, max(seeds)::double as value
from designs where role = 'training' group by arm having max(coalesce(seeds, 1)) < 2
order by all

-- pass@1 by source of both arms at screening, on the held-out problems and on the whole pool.
with tall as (
    select arm, problem_id, source, num_correct / group_size as share from bands
    union all select arm, problem_id, 'all', num_correct / group_size from bands)
select arm, tall.source as source, avg(share) filter (where held.problem_id is not null) as heldout,
       count(held.problem_id) as heldout_n, avg(share) as pool, count(*) as pool_n
from tall left join (select problem_id from pools where pool = 'heldout_eval') held using (problem_id)
group by arm, tall.source order by arm, source <> 'all', source

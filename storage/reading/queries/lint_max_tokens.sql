-- Compared runs that were cut at different lengths; and an arm screened at another length than it is trained at.
select 'max_tokens' as code, a.arm || ' and ' || b.arm || ' on ' || a.problems || ' were sampled with max_tokens '
       || a.max_tokens || ' and ' || b.max_tokens as fact,
       a.place || ', ' || b.place as place,
       'the longer budget gets answers that the shorter one cuts off; accuracy, pass@k and token ratios all move' as inference,
       abs(a.max_tokens - b.max_tokens)::double as value
from designs a join designs b using (family)
where a.run < b.run and a.arm <> b.arm and a.max_tokens <> b.max_tokens and a.role <> 'training'
union all
select 'max_tokens', a.arm || ' was screened with max_tokens ' || a.max_tokens || ' and is trained with ' || b.max_tokens,
       a.place || ', ' || b.place, 'bands were drawn for another policy than the one that gets the gradient',
       abs(a.max_tokens - b.max_tokens)::double
from designs a join designs b using (arm)
where a.role = 'screening' and b.role = 'training' and a.max_tokens <> b.max_tokens
order by all

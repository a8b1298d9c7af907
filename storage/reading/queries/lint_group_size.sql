-- Bands at one group size, gradients at another.
select distinct 'group_size' as code,
       a.arm || ' was screened with groups of ' || a.group_size || ' and is trained with groups of ' || b.group_size as fact,
       a.place || ', ' || b.place as place,
       coalesce('about ' || m.count || ' of ' || m.n || ' problems called dead would give a gradient at the training size',
                'problems called dead at one size are live at the other') as inference,
       m.share as value
from designs a join designs b using (arm) left join mislabelled m using (arm)
where a.role = 'screening' and b.role = 'training' and a.group_size <> b.group_size
order by all

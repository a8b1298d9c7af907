-- Arms that were screened with other weights than training starts from.
select distinct 'screening_policy' as code,
       a.arm || ' was screened with ' || a.policy || ' but training starts from ' || b.policy as fact,
       a.place || ', ' || b.place as place,
       'the training pool is the variance band of another policy: its own may differ in size and content' as inference,
       null::double as value
from designs a join designs b using (arm)
where a.role = 'screening' and b.role = 'training' and a.policy <> b.policy
order by all

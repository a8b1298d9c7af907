-- Compared arms with different numbers of rollouts a problem.
select 'unequal_n' as code,
       a.arm || ' has ' || a.group_size || ' rollouts a problem and ' || b.arm || ' ' || b.group_size || ' on ' || a.problems
           as fact,
       a.place || ', ' || b.place as place,
       '"solved at least once" and extremes favour the arm with more rollouts; compare at the smaller number' as inference,
       abs(a.group_size - b.group_size)::double as value
from designs a join designs b using (family)
where a.run < b.run and a.arm <> b.arm and a.group_size <> b.group_size and a.role in ('evaluation', 'heldout', 'screening')
order by all

-- Compared arms whose weights have different origins.
select distinct 'different_models' as code,
       a.arm || ' runs on ' || a.model || ' and ' || b.arm || ' on ' || b.model || ' (' || a.family || ')' as what,
       a.place || ', ' || b.place as place,
       'the post-training of the base differs too: a difference cannot be laid to the scaffold' as matter, null::double as value
from designs a join designs b using (family)
where a.arm < b.arm and a.model <> b.model and a.role in ('screening', 'evaluation', 'heldout')
order by all

-- Everything that an artifact descends from, itself included.
with recursive up(ref) as (
    select $report::varchar
    union
    select unnest(a.inputs) from artifacts a join up on a.ref = up.ref
)
select a.* from artifacts a semi join up using (ref) order by a.created, a.ref

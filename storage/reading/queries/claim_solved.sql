-- needs: hard_problems
-- Problems of a slice solved by both, one or neither; slice by source prefix and size.
with slice as (
    select ref, solved_by from hard_problems where arm = 'panel' and other = 'thinking' and reason is null
    qualify count(*) over (partition by ref) = $n)
select count(*) filter (where solved_by = $by) / count(distinct ref) as value from slice having count(*) > 0

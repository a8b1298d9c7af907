-- needs: solved_by
-- Problems of one evaluation's file solved by both arms, one or neither.
with slice as (
    select ref, solved_by from solved_by where arm = 'panel' and other = 'thinking' and reason is null
      and ref in (select ref from imports where path = $file))
select count(*) filter (where solved_by = $by) / count(distinct ref) as value from slice having count(*) > 0

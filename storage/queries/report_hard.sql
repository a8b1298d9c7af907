-- Held-out problems by who solved them, every two policies. strict_subset: one solves nothing that the other does not.
select
    arm, step, other, other_step, count(*) as problems,
    count(*) filter (solved_by = 'both') as "both", count(*) filter (solved_by = 'arm_only') as arm_only,
    count(*) filter (solved_by = 'other_only') as other_only, count(*) filter (solved_by = 'neither') as neither,
    case
        when count(*) filter (solved_by in ('arm_only', 'other_only')) = 0 then 'the same problems'
        when count(*) filter (solved_by = 'arm_only') = 0 then 'arm solves a strict subset'
        when count(*) filter (solved_by = 'other_only') = 0 then 'other solves a strict subset'
        else 'neither contains the other'
    end as sets,
    bool_and(equal_n) as equal_n
from hard
group by arm, step, other, other_step
order by arm, step, other, other_step

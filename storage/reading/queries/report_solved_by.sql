/*
section = "solved_by"
place = 10
title = "Problems solved by both policies, one or none"
caption = "Every two policies on the held-out problems."
sources = ["solved_by"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Held-out problems by which of two policies solved them. sets: whether the solved problems of one are a strict
-- subset of the other's. Null, with a reason, for two policies without a common problem.
select
    arm, step, other, other_step, count(problem_id) as problems,
    sum((solved_by = 'both')::int)::bigint as "both", sum((solved_by = 'arm_only')::int)::bigint as arm_only,
    sum((solved_by = 'other_only')::int)::bigint as other_only, sum((solved_by = 'neither')::int)::bigint as neither,
    case
        when count(problem_id) = 0 then null
        when not bool_or(solved_by in ('arm_only', 'other_only')) then 'the same problems'
        when not bool_or(solved_by = 'arm_only') then 'arm solves a strict subset'
        when not bool_or(solved_by = 'other_only') then 'other solves a strict subset'
        else 'neither contains the other'
    end as sets,
    bool_and(equal_n) as equal_n, any_value(reason) as reason
from solved_by
group by arm, step, other, other_step
order by arm, step, other, other_step

/*
section = "solved_by"
place = 20
title = "Problems that only one arm solves"
caption = "Solved under one arm and not under the other."
sources = ["solved_by"]
empty = "every problem is solved by both arms or by neither."
*/
-- Problems that one arm solved and another did not, at the same phase of training.
select h.problem_id, h.source, h.arm, h.step, h.num_correct, h.group_size, h.other, h.other_step, h.other_correct,
    h.other_group_size, h.solved_by
from solved_by h
where h.solved_by in ('arm_only', 'other_only') and h.arm <> h.other
order by h.arm, h.other, h.step, h.other_step, h.source, h.problem_id

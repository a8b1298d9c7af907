/*
section = "training"
place = 71
title = "pass@1 against pass@k gain"
caption = """
Each point is an objective: its gain in pass@1 and its gain at the largest k. Objectives at the upper left gain \
width without gaining accuracy."""
sources = ["objectives"]
empty = "the study has no other objective."
[chart]
kind = "points"
x = "pass_at_1_gain"
y = "pass_at_k_gain"
x_name = "gain in pass@1, points"
y_name = "gain in pass@k, points"
label = "objective"
*/
-- Gains of each objective at one rollout and at the largest k, in percentage points.
with gains as (
    select arm, objective, split_part(metric, '@', 2)::integer as k, 100 * change as gain, 100 * change_low as low,
        100 * change_high as high, holds_for
    from objectives where metric like 'pass@%')
select g.arm, g.objective, one.gain as pass_at_1_gain, one.low as pass_at_1_gain_low, one.high as pass_at_1_gain_high,
    g.k, g.gain as pass_at_k_gain, g.low as pass_at_k_gain_low, g.high as pass_at_k_gain_high, g.holds_for
from gains g join gains one on one.arm = g.arm and one.objective = g.objective and one.k = 1 join arms a on a.arm = g.arm
where g.k = (select max(k) from gains)
order by a.place, g.objective <> 'as the study has it', g.objective

/*
section = "training"
place = 70
title = "Objectives"
caption = """
The same arm, problems, seeds and token budget, trained with other objectives. Change: after minus before. The last \
columns compare with the study's own objective, corrected over all comparisons (Holm). Answers and correct ways are \
counted among 8 rollouts; answers are distinct by the grader."""
sources = ["objectives"]
empty = "the study has no other objective."
*/
-- Every objective and metric: before, after, change, and the difference from the study's own objective.
select o.arm, o.objective, o.metric, o.before, o.after, o.change, o.change_low, o.change_high,
    o.over_baseline, coalesce(o.corrected_low, o.over_low) as over_low,
    coalesce(o.corrected_high, o.over_high) as over_high, o.p_adjusted, o.n, o.seeds, o.holds_for, o.reason
from objectives o join arms a using (arm)
order by a.place, o.objective <> 'as the study has it', o.objective, o.metric

/*
section = "diversity"
place = 82
title = "Distinct answers among k rollouts"
caption = """
D_k: expected number of distinct answers, by the grader's classes. It is 1 for a policy that is always right."""
sources = ["widths"]
empty = "width was not measured in this run."
[chart]
kind = "lines"
x = "k"
y = "distinct_answers"
x_name = "k"
y_name = "distinct answers"
log_x = true
*/
-- Rarefied distinct answers D_k, by k.
select w.arm, w.step, w.k, w.estimate as distinct_answers, w.low as distinct_answers_low,
    w.high as distinct_answers_high, w.n, w.holds_for, w.reason
from widths w join arms a using (arm)
where w.metric = 'distinct_k' and w."partition" = 'answer' and w.basis = 'all' and w.other is null
order by a.place, w.step, w.k

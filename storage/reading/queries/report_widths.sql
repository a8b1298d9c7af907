/*
section = "diversity"
place = 80
title = "Width by every measure"
caption = """
Each at one k, the largest that is half a group or less: what k rollouts are expected to show, so that policies with other \
n compare. Beside it the same of the correct rollouts alone. Self-BLEU is low where traces differ, every other measure high."""
sources = ["widths"]
empty = "width was not measured in this run."
*/
-- Every measure of width of every policy, of all rollouts and of the correct alone. The table `widths` has every k.
with shown as (select arm, step, max(k) as k from widths where other is not null group by all)
select w.metric, w."partition", w."window", w.arm, w.step, w.k, w.estimate as width, w.low as width_low,
    w.high as width_high, w.n, c.estimate as of_correct, c.low as of_correct_low, c.high as of_correct_high,
    c.n as n_correct, w.holds_for, coalesce(w.reason, c.reason) as reason
from widths w
join shown using (arm, step, k)
join arms a using (arm)
join widths c on (c.metric, c.arm, c.step, c.k, c.basis) = (w.metric, w.arm, w.step, w.k, 'correct')
    and c."partition" is not distinct from w."partition" and c."window" is not distinct from w."window" and c.other is null
where w.basis = 'all' and w.other is null
order by w.metric, w."partition", w."window", a.place, w.step

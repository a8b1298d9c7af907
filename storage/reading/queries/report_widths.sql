/*
section = "diversity"
place = 80
title = "Width by every measure"
caption = """
Each measure at the largest k of at most half a group: its expected value for k rollouts, so that policies with \
different n can be compared. Beside it the value for correct rollouts only. Self-BLEU is low for diverse traces, all \
other measures are high."""
sources = ["widths"]
empty = "width was not measured in this run."
*/
-- Every measure of width of every policy, for all rollouts and for correct ones only. The table `widths` has every k.
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

/*
section = "diversity"
place = 84
title = "Width beside length and accuracy"
caption = """
Spearman's rank correlation over problems of each measure with mean length and with the share of correct rollouts. \
Do not read a measure that correlates with length as width if lengths differ."""
sources = ["widths"]
empty = "width was not measured in this run."
*/
-- Rank correlation of every measure of width with length and with accuracy, over problems of one policy.
select l.metric, l."partition", l.arm, l.step, l.k, l.estimate as with_length, l.low as with_length_low,
    l.high as with_length_high, r.estimate as with_accuracy, r.low as with_accuracy_low, r.high as with_accuracy_high,
    l.n, l.holds_for, coalesce(l.reason, r.reason) as reason
from widths l
join arms a using (arm)
join widths r on (r.metric, r.arm, r.step, r.other) = (l.metric, l.arm, l.step, 'accuracy')
    and r."partition" is not distinct from l."partition" and r."window" is not distinct from l."window"
where l.other = 'length'
order by l.metric, l."partition", a.place, l.step

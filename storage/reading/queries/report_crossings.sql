/*
section = "passk"
place = 35
title = "Where pass@k curves cross"
caption = """
The k from which the policy that was behind is ahead. The interval holds every k at which the gap is not told from \
zero; an end is missing where the data do not say who leads there."""
sources = ["crossings"]
empty = "there is one policy only."
*/
-- Where the pass@k curves of two policies cross, or that they do not.
select c.arm, c.step, c.other, c.other_step, c.leader, c.crosses, c.estimate as crossing_k, c.low as crossing_k_low,
    c.high as crossing_k_high, c.k_max, c.n, c.holds_for, c.reason
from crossings c join arms a using (arm) join arms o on o.arm = c.other
where c.source = 'all'
order by a.place, o.place, c.step, c.other_step

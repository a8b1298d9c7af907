/*
section = "diversity"
place = 40
title = "Diversity by window"
caption = """
The same comparison on other parts of the traces. A trace shorter than a window is used whole, so short traces make \
windows agree. The published opening window, head2000chars, is almost equal to first256 and is only in `varband \
store sql`."""
sources = ["diversity"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Two policies' diversity in every window of the traces, paired by problem.
select "window", arm, step, other, other_step, n, mean, other_mean, difference, low as difference_low,
    high as difference_high, p_value, p_adjusted, family, coverage, other_coverage, holds_for, reason
from diversity
where metric = 'diversity' and basis = 'all' and "window" <> 'head2000chars'
order by arm, step, other, other_step, "window" <> 'whole', "window"

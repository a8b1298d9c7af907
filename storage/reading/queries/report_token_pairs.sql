/*
section = "tokens"
place = 20
title = "Lengths, pair by pair"
caption = """
Ratios are other over arm. Pairing by rollout index as published, and by problem as independence asks; the test is \
given for problems only."""
sources = ["tokens"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Lengths of two policies pair by pair, by who was correct. Ratios are other over arm.
select pairing, bucket, arm, step, other, other_step, n, median, other_median, ratio_median, ratio_geomean, ratio_low as ratio_geomean_low, ratio_high as ratio_geomean_high, ratio_min,
    ratio_max, longer_in as other_longer_in, p_wilcoxon, p_adjusted, truncated, other_truncated, holds_for, reason
from tokens
where metric = 'bucket' and (source = 'all' or source is null) and arm <> other
order by arm, step, other, other_step, pairing desc, bucket

/*
section = "tokens"
place = 20
title = "Lengths of two policies, paired"
caption = """
Mean tokens of a problem's rollouts, by which policy is correct, paired by rollout index. Ratios are other over arm."""
sources = ["tokens"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Lengths of two policies, paired by problem, by which is correct. Ratios are other over arm.
select bucket, arm, step, other, other_step, n, median, other_median, ratio_median, ratio_geomean,
    ratio_low as ratio_geomean_low, ratio_high as ratio_geomean_high, ratio_min, ratio_max,
    longer_in as other_longer_in, p_wilcoxon, p_adjusted, truncated, other_truncated, holds_for, reason
from tokens
where metric = 'bucket' and (source = 'all' or source is null) and arm <> other
order by arm, step, other, other_step, bucket

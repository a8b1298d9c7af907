/*
section = "diversity"
place = 30
title = "Policies compared"
caption = "Paired by problem, arm minus other. adjusted: the difference at equal length and accuracy, by regression."
sources = ["diversity"]
empty = "there is only one arm or one policy, so there is nothing to compare."
*/
-- Every two policies on their common problems. Distance is of the whole traces; adjusted: at equal length and accuracy.
with
policies as (select distinct arm, step from final),
untold as (
    select a.arm, a.step, b.arm as other, b.step as other_step
    from policies a join policies b on (a.arm, a.step) < (b.arm, b.step)
    except select arm, step, other, other_step from diversity
)
select metric, basis, arm, step, other, other_step, n, mean, other_mean, difference,
    coalesce(corrected_low, low) as difference_low, coalesce(corrected_high, high) as difference_high, relative, relative_low, relative_high, p_value, p_adjusted, family, d_z,
    adjusted_difference, adjusted_low as adjusted_difference_low, adjusted_high as adjusted_difference_high,
    adjusted_p as p_of_adjusted, adjusted_p_corrected as p_of_adjusted_corrected, adjusted_reason, coverage, other_coverage, holds_for, reason
from diversity
where "window" = 'whole'
union all by name
select 'diversity' as metric, 'all' as basis, *, 0 as n, 'no traces were embedded: one of the two has none, or the study asks for no diversity' as reason from untold
order by metric, basis, arm, step, other, other_step

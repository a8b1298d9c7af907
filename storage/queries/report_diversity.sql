-- Every two policies on their common problems. Distance is of the whole traces; adjusted: at equal length and accuracy.
select measure, basis, arm, step, other, other_step, n, mean, other_mean, difference,
    low as difference_low, high as difference_high, relative, t, p_t, p_holm, d_z,
    adjusted_difference, adjusted_low as adjusted_difference_low, adjusted_high as adjusted_difference_high,
    coverage, other_coverage, reason
from diversity
where "window" = 'whole'
order by measure, basis, arm, step, other, other_step

/*
section = "bands"
place = 50
title = "How reliable the bands are"
caption = """
Beta-binomial fit. expected_live: share of groups expected to have a gradient at the training group size; \
live_in_band: the same within the variance band; mislabelled: share of all_zero and all_one problems that would be \
live in another sample. adaptive_saving: rollouts saved by stopping a problem once both outcomes were seen; it gives \
the same bands and has no interval."""
sources = ["crosstab"]
*/
-- Beta-binomial expectations: groups with a gradient at the training group size, and mislabelled bands.
select arm, metric, band, count, estimate, low, high, n, reason
from crosstab
where source = 'all' and other is null and metric <> 'count'
order by arm, metric, band

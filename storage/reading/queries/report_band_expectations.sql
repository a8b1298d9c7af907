/*
section = "bands"
place = 50
title = "How much of a band is luck"
caption = """
Beta-binomial fit: share of groups expected to have a gradient at the training group size (expected_live, and of \
today's variance band), and share of all_zero and all_one problems that would be live in another draw \
(mislabelled). adaptive_saving: rollouts that leaving a problem once both outcomes were seen saves, for the same \
bands, of which no interval is made."""
sources = ["crosstab"]
*/
-- Beta-binomial expectations: groups with a gradient at the training group size, and bands that are luck.
select arm, metric, band, count, estimate, low, high, n, reason
from crosstab
where source = 'all' and other is null and metric <> 'count'
order by arm, metric, band

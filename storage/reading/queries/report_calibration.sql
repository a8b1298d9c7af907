/*
section = "diversity"
place = 70
title = "Accuracy of trace classes"
caption = """
Two traces with at least the threshold similarity may be in one class. On labelled traces, with thresholds \
calibrated on the other problems. Precision: share of pairs in one class that have the same solution. Recall: share \
of pairs with the same solution that are in one class."""
sources = ["calibrations"]
empty = "this run has no partition of its traces."
*/
-- Precision and recall of partitions by trace and by strategy, on labelled traces.
select "partition", encoder, threshold, "precision" as precision_rate, precision_low as precision_rate_low,
    precision_high as precision_rate_high, recall as recall_rate, recall_low as recall_rate_low,
    recall_high as recall_rate_high, joined as pairs_joined, same as pairs_same, pairs, problems, traces, reason
from calibrations
order by "partition" desc

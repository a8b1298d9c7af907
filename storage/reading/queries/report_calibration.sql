/*
section = "diversity"
place = 70
title = "How well traces are told apart"
caption = """
From the threshold on, two traces may be of one class. Precision and recall on labelled traces, each problem's by the \
threshold that the other problems set: of pairs in one class those that are of one solution, and the reverse."""
sources = ["calibrations"]
empty = "this run has no partition of its traces."
*/
-- Precision and recall of partitions by trace and by strategy, on labelled traces.
select "partition", encoder, threshold, "precision" as precision_rate, precision_low as precision_rate_low,
    precision_high as precision_rate_high, recall as recall_rate, recall_low as recall_rate_low,
    recall_high as recall_rate_high, joined as pairs_joined, same as pairs_same, pairs, problems, traces, reason
from calibrations
order by "partition" desc

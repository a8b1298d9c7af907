/*
section = "passk"
place = 60
title = "One answer from k rollouts"
caption = """
maj@k: the most frequent answer; shortest@k, likeliest@k (highest mean log-probability per token): best-of-k without \
a reward model. pass@k is best-of-k with a perfect selector."""
sources = ["votes"]
empty = "voting was not measured in this run."
*/
-- One answer from k rollouts: by majority, or by a selector without a reward model.
select metric, arm, step, k, estimate as right_rate, low as right_rate_low, high as right_rate_high, n, holds_for, reason
from votes join arms using (arm)
where source = 'all'
order by metric, place, step, k

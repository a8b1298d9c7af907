/*
section = "training"
place = 10
title = "Curve: held-out accuracy by step"
caption = """
Mean over problems; shaded: 95 % interval over problems and seeds. The curve has its own rollouts, often fewer, so \
gains are computed from the final evaluation instead."""
sources = ["curves"]
[chart]
kind = "lines"
x = "step"
y = "heldout_rate"
x_name = "step"
y_name = "held-out accuracy"
*/
-- Held-out accuracy by step, all sources together; seeds combined.
select arm, step, estimate as heldout_rate, low as heldout_rate_low, high as heldout_rate_high, n, rollouts, seeds,
    method, holds_for, reason
from curves join arms using (arm)
where series = 'heldout' and source = 'all'
order by place, step

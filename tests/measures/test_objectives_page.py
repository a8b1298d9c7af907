"""The page of a comparison shows every comparison that it counts, and says how far tokens are from the budget."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.demo_objectives import alike, page
from storage.artifacts.ref import Ref
from tasks.domain.grpo.types import BASELINE
from tasks.measures.objectives import metrics, of_steps


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for o, objective in enumerate((BASELINE, "other")):
        for m, metric in enumerate(metrics(32)):
            row = {"objective": objective, "metric": metric, "n": 9, "seeds": 3, "before": 0.2, "after": 0.3}
            row |= {"change": 0.1, "change_low": 0.0, "change_high": 0.2}
            over = {"over_baseline": 0.25, "over_low": 0.0, "over_high": 0.5, "p_adjusted": (m + 1) / 7}
            found.append(row | (over if o else dict.fromkeys(over)))
        steps = [{"entropy": 0.5, "live_groups": 0.5, "signal_groups": 0.5, "num_tokens": 40_000 + o}]
        found += of_steps(objective, [steps])
    return [dict.fromkeys(("p_adjusted", "over_baseline"), None) | row for row in found]


def test_every_comparison_that_is_counted_is_shown() -> None:
    told, judged = rows(), [row for row in rows() if row["p_adjusted"] is not None]
    text = page(
        "demo/objectives",
        27,
        told,
        ["all_zero", "band", "all_zero", "all_one"],
        "figure.svg",
        Ref.parse("report-0000000000000000"),
    )
    assert f"any of {len(judged)} comparisons" in text and len(judged) == len(metrics(32))
    assert re.findall(r", p ([\d.]+)", text) == [f"{row['p_adjusted']:.2g}" for row in judged]
    assert "+25.0 [+0.0, +50.0], p 0.14" in text and "+0.25 [+0.00, +0.50], p 0.57" in text
    assert "36,000 sampled tokens" in text and "40,000 to 40,001" in text
    assert "Of 4 problems screened for training 50% are `all_zero`" in text and "are one here" not in text


def test_objectives_that_trained_alike_are_said_to_be_one() -> None:
    told: dict[str, dict[str, Any]] = {name: {} for name in (BASELINE, "other")}
    for row in rows():
        told[row["objective"]][row["metric"]] = row | {"after": 0.3}
    assert alike(told) == [[BASELINE, "other"]]

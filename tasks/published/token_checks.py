"""The published token table, whose rollouts were not published: is it consistent with itself and its neighbours?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]


PARTS = ("both_correct", "panel_only", "thinking_only", "neither")


def token_checks(name: str, bench: Mapping[str, Any], correct: Mapping[str, int], draws: int) -> list[Row]:
    """Columns of TokenChecks for one benchmark. correct: correct rollouts per arm in the evaluation's own summary, of
    `draws` paired ones where its n is the same."""
    b = bench["buckets"]
    whole, parts = b["all_paired"], [b[p] for p in PARTS]

    def row(check: str, printed: float, follows: float, detail: str = "") -> Row:
        return {
            "bench": name,
            "check": check,
            "printed": float(printed),
            "follows": float(follows),
            "holds": math.isclose(printed, follows, rel_tol=1e-9, abs_tol=1e-12),
            "detail": detail,
        }

    rows = [
        row("buckets add up to all pairs", whole["n"], sum(p["n"] for p in parts)),
        row("pairs are problems × rollouts", bench["n_paired"], draws),
        row("panel correct = both + panel only", bench["panel_correct_count"], parts[0]["n"] + parts[1]["n"]),
        row("thinking correct = both + thinking only", bench["thinking_correct_count"], parts[0]["n"] + parts[2]["n"]),
        row("longer-in adds up", whole["thinking_longer_in"], sum(p["thinking_longer_in"] for p in parts)),
    ]
    for arm, field in (("panel", "panel_tokens_mean"), ("thinking", "think_tokens_mean")):
        rows.append(
            row(
                f"{arm} mean of all pairs = weighted mean of buckets",
                whole[field],
                sum(p[field] * p["n"] for p in parts) / whole["n"],
            )
        )
        rows.append(
            row(
                f"{arm} tokens per correct",
                bench["cost_per_correct"][f"{arm}_tokens_per_correct"],
                whole[field] * whole["n"] / bench[f"{arm}_correct_count"],
            )
        )
        rows.append(
            row(
                f"{arm} correct count = its evaluation's",
                bench[f"{arm}_correct_count"],
                correct[arm],
                "the evaluation has more rollouts a problem than were paired"
                if correct[arm] != bench[f"{arm}_correct_count"]
                else "",
            )
        )
    for bucket in b.values():
        n = bucket["n"]
        rows.append(
            row(
                f"{bucket['name']}: global ratio = ratio of means",
                bucket["global_ratio"],
                bucket["think_tokens_mean"] / bucket["panel_tokens_mean"],
            )
        )
        rows.append(
            row(f"{bucket['name']}: share longer", bucket["thinking_longer_frac"], bucket["thinking_longer_in"] / n)
        )
        ordered = [bucket["ratio_min"], bucket["ratio_geomean"], bucket["ratio_mean"], bucket["ratio_max"]]
        rows.append(row(f"{bucket['name']}: min ≤ geometric mean ≤ mean ≤ max", 1.0, float(ordered == sorted(ordered))))
    return [*rows, _wilcoxon(name, bench["wilcoxon_both_correct"])]


def _wilcoxon(name: str, w: Mapping[str, Any]) -> Row:
    """The printed p is that of W's normal approximation over draws, as if draws of one problem were independent."""
    from scipy.stats import norm

    n = w["n_nonzero"]
    z = (w["statistic"] - n * (n + 1) / 4) / math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    p = float(2 * norm.sf(abs(z)))
    return {
        "bench": name,
        "check": "Wilcoxon p follows from its statistic and n",
        "printed": w["pvalue"],
        "follows": p,
        "holds": math.isclose(p, w["pvalue"], rel_tol=0.02),
        "detail": "normal approximation without ties; the pairs are draws, not problems",
    }

"""G-Pass@k: the chance that a given share of k rollouts is correct, between pass@k (one of them) and pass^k (all)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Groups, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels
from tasks.domain.statistics.estimators import g_pass_at_k
from tasks.domain.statistics.means import folded
from tasks.domain.statistics.seeded import by_seed
from tasks.measures.grouping import read_groups
from tasks.measures.slicing import counts_of
from tasks.measures.standard import standard_measure
from tasks.stage import stage

THRESHOLDS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))


class GPass(
    Ref,
    kind="g_pass",
    schema=nullable(
        "metric str, arm str, step int, source str, k int, threshold real, wanted int, estimate real, low real",
        "high real, n big, clusters big, rollouts int, seeds int, holds_for str, reason str",
    ),
):
    """G-Pass@k per policy, source and threshold."""


def g_pass_of(groups: pa.Table, ks: Sequence[int], thresholds: Sequence[Fraction] = THRESHOLDS) -> pa.Table:
    """One row per (arm, step), source, k ≥ 2 and threshold τ; intervals over problems and, for what was trained, seeds.

    metric: `G-Pass@k`, at least `wanted` = ⌈τ·k⌉ of k rollouts are correct; `mG-Pass@k`, its mean over the thresholds
    i/k above a half, for even k the published 2/k · Σ_{i > k/2}. Null with the reason where a
    problem has fewer than k rollouts.
    """
    counts, rows = counts_of(groups), []
    for (arm, step, source), mine in counts.places.items():
        columns = {name: column[mine] for name, column in counts.columns.items()}
        rollouts = int(columns["group_size"].min())
        for k in (k for k in ks if k > 1):
            about: dict[str, Any] = {"arm": arm, "step": step, "source": source, "k": k, "rollouts": rollouts}
            if k > rollouts:
                why = f"a problem has {rollouts} rollouts, fewer than k = {k}"
                rows.append(about | {"metric": "G-Pass@k", "reason": why})
                continue
            rows += [about | row for row in _at(columns, k, thresholds)]
    return pa.Table.from_pylist(rows, schema=GPass.schema)


def _at(columns: dict[str, np.ndarray], k: int, thresholds: Sequence[Fraction]) -> list[dict[str, Any]]:
    """One row a threshold, and the mean over those above a half."""
    size_N, correct_N = columns["group_size"], columns["num_correct"]
    wanted = [max(1, ceil(t * k)) for t in thresholds]
    mean_N = g_pass_at_k(size_N, correct_N, k, range(k // 2 + 1, k + 1)).data.mean(axis=1)
    tails_NV = g_pass_at_k(size_N, correct_N, k, wanted).data
    values_NV = np.column_stack([tails_NV, mean_N, columns["cluster"]])
    found = by_seed(columns["problem"], columns["adapter"], values_NV)
    named: list[dict[str, Any]] = [
        {"metric": "G-Pass@k", "threshold": float(t), "wanted": w} for t, w in zip(thresholds, wanted, strict=True)
    ]
    named.append({"metric": "mG-Pass@k"})
    shared = {"n": len(found.problem_P), "seeds": len(found.values_SPV) if found.trained else None}
    if not len(found.problem_P):
        return [row | shared | {"reason": INCOMPLETE} for row in named]
    values_SCV = folded(found.values_SPV[:, :, :-1], found.values_SPV[0, :, -1])
    shared["clusters"] = values_SCV.shape[1]
    return [row | shared | level for row, level in zip(named, levels(values_SCV, found.trained), strict=True)]


@standard_measure("g_pass", rollouts="final")
@stage(GPass, version=7)
def measure_g_pass(*, rollouts: tuple[Rollouts | Groups, ...], ks: tuple[int, ...]) -> pa.Table:
    """G-Pass@k and mG-Pass@k of every (arm, step), per source and for all of them."""
    return g_pass_of(read_groups(rollouts), ks)

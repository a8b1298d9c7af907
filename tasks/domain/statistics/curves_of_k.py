"""Curves over k: estimates, intervals that hold point by point or all together, and contrasts of two curves.

Problems with the same counts are exchangeable, so a bootstrap over a million rollouts draws class counts from one
multinomial (tasks.domain.statistics.intervals.resample_classes) and multiplies them with the classes' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.domain.statistics import estimators
from tasks.domain.statistics.intervals import percentile, resample_classes, simultaneous

METRICS = {"pass@k": estimators.pass_at_k, "pass^k": estimators.pass_all_k}


@dataclass(frozen=True, slots=True)
class KCurve:
    """One policy on one slice. values: metric → (P, K) per problem, averaged over its policies, masked where n < k."""

    problem_P: np.ndarray
    values: dict[str, np.ma.MaskedArray]
    rollouts: int
    policies: int
    tokens_per_rollout: float | None

    def rows(self, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
        """Columns: metric, k, estimate, intervals, n, rollouts, policies, tokens, reason."""
        return [row for metric in METRICS for row in self._rows(metric, ks, draws, seed)]

    def _rows(self, metric: str, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
        values_PK = self.values[metric]
        known = [i for i in range(len(ks)) if not np.ma.getmaskarray(values_PK)[:, i].any()]
        shared = {"metric": metric, "n": len(self.problem_P), "rollouts": self.rollouts, "policies": self.policies}
        found: dict[int, dict[str, Any]] = {}
        if known:
            estimates, drawn = bootstrap_columns(values_PK.data[:, known], draws, seed)
            low, high = simultaneous(estimates, drawn)
            for place, i in enumerate(known):
                interval = percentile(float(estimates[place]), drawn[:, place])
                found[i] = {
                    "estimate": interval.estimate,
                    "low": interval.low,
                    "high": interval.high,
                    "low_simultaneous": float(max(0.0, low[place])),
                    "high_simultaneous": float(min(1.0, high[place])),
                }
        return [
            shared
            | {"k": k, "tokens": None if self.tokens_per_rollout is None else k * self.tokens_per_rollout}
            | found.get(i, {"reason": f"a problem has {self.rollouts} rollouts, fewer than k = {k}"})
            for i, k in enumerate(ks)
        ]


def k_curve(
    problem_N: np.ndarray,
    policy_N: np.ndarray,
    size_N: np.ndarray,
    correct_N: np.ndarray,
    tokens_N: np.ndarray,
    ks: Sequence[int],
) -> KCurve:
    """From groups, one row per (problem, policy), sorted by problem. Several policies of a problem are averaged."""
    new_N = np.concatenate([[True], problem_N[1:] != problem_N[:-1]]) if len(problem_N) else np.zeros(0, bool)
    problem_P, index_N = problem_N[new_N], np.cumsum(new_N) - 1
    times_P = np.bincount(index_N, minlength=len(problem_P))
    values = {}
    for name, estimate in METRICS.items():
        per_group = estimate(size_N, correct_N, ks)
        if len(problem_P) == len(problem_N):
            values[name] = per_group
            continue
        total = np.zeros((len(problem_P), len(ks)))
        np.add.at(total, index_N, per_group.filled(0.0))
        mask = np.zeros(total.shape, bool)
        np.logical_or.at(mask, index_N, np.ma.getmaskarray(per_group))
        values[name] = np.ma.MaskedArray(total / times_P[:, None], mask=mask)
    rollouts, tokens = int(size_N.sum()), float(tokens_N.sum())  # imported counts have no tokens: not a number
    values = {name: np.ma.MaskedArray(v.data, mask=np.ma.getmaskarray(v)) for name, v in values.items()}
    policies, cost = len(set(policy_N.tolist())), tokens / rollouts if np.isfinite(tokens) else None
    return KCurve(problem_P, values, int(size_N.min()), policies, cost)


def bootstrap_columns(values_PV: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(means_V, draws_BV) of columns drawn together over problems. Equal rows are one class of the multinomial."""
    classes_CV, counts_C = np.unique(values_PV, axis=0, return_counts=True)
    drawn = resample_classes(counts_C, draws, seed) @ classes_CV
    return values_PV.mean(axis=0), drawn


def doublings(curve: KCurve, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
    """pass@k with its interval, and by how much each k exceeds the k before it. No k may exceed a group's size."""
    values_PK = curve.values["pass@k"].data
    columns = np.concatenate([values_PK, np.diff(values_PK, axis=1)], axis=1)
    mean_V, drawn_BV = bootstrap_columns(columns, draws, seed)
    found = [percentile(float(mean_V[i]), drawn_BV[:, i]) for i in range(len(mean_V))]
    rows: list[dict[str, Any]] = [
        {"k": k, "estimate": i.estimate, "low": i.low, "high": i.high} for k, i in zip(ks, found, strict=False)
    ]
    for row, more in zip(rows[1:], found[len(ks) :], strict=True):
        row |= {"doubling": more.estimate, "doubling_low": more.low, "doubling_high": more.high}
    return rows


def contrast_curves(a: KCurve, b: KCurve, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
    """Rows of gap, closure and monotone between two pass@k curves on their common problems."""
    from scipy import stats

    _, in_a, in_b = np.intersect1d(a.problem_P, b.problem_P, assume_unique=True, return_indices=True)
    n = len(in_a)
    if n == 0:
        return [{"metric": "gap", "n": 0, "reason": "no problem in common"}]
    first, second = a.values["pass@k"][in_a], b.values["pass@k"][in_b]
    masked_K = np.ma.getmaskarray(first).any(axis=0) | np.ma.getmaskarray(second).any(axis=0)
    rows: list[dict[str, Any]] = [
        {"metric": "gap", "k": k, "n": n, "reason": f"a problem has fewer than k = {k} rollouts in one of the two"}
        for i, k in enumerate(ks)
        if masked_K[i]
    ]
    known = [i for i in range(len(ks)) if not masked_K[i]]
    if not known:
        return rows
    gap_PK = first.data[:, known] - second.data[:, known]
    gap_K, drawn_BK = bootstrap_columns(gap_PK, draws, seed)
    for place, i in enumerate(known):
        interval = percentile(float(gap_K[place]), drawn_BK[:, place])
        spread = float(gap_PK[:, place].std(ddof=1)) if n > 1 else 0.0
        p = float(2 * stats.t.sf(abs(gap_K[place]) / (spread / np.sqrt(n)), n - 1)) if spread > 0 else None
        rows.append(
            {
                "metric": "gap",
                "k": ks[i],
                "estimate": interval.estimate,
                "low": interval.low,
                "high": interval.high,
                "p_value": p,
                "n": n,
            }
        )
    if len(known) < 2:
        return [*rows, {"metric": "closure", "n": n, "reason": "one k has nothing to close"}]
    return sorted(rows, key=lambda r: r["k"]) + _closure(gap_PK, gap_K, drawn_BK, ks[known[-1]])  # type: ignore[arg-type, return-value]


def _closure(gap_PK: np.ndarray, gap_K: np.ndarray, drawn_BK: np.ndarray, k_max: int) -> list[dict[str, Any]]:
    """How much of the gap at the smallest k is gone at the largest. The sign is that of the first gap, so a gap that
    turns round has closed by more than its size."""
    from scipy import stats

    sign, n = (1.0 if gap_K[0] >= 0 else -1.0), len(gap_PK)
    per_P = sign * (gap_PK[:, 0] - gap_PK[:, -1])
    closure = percentile(float(per_P.mean()), sign * (drawn_BK[:, 0] - drawn_BK[:, -1]))
    spread = float(per_P.std(ddof=1)) if n > 1 else 0.0
    p = float(2 * stats.t.sf(abs(closure.estimate) / (spread / np.sqrt(n)), n - 1)) if spread > 0 else None
    narrower_B = (np.diff(sign * drawn_BK, axis=1) <= 1e-12).all(axis=1)
    observed = bool((np.diff(sign * gap_K) <= 1e-12).all())
    return [
        {
            "metric": "closure",
            "k": k_max,
            "estimate": closure.estimate,
            "low": closure.low,
            "high": closure.high,
            "p_value": p,
            "n": n,
            "reason": None if spread > 0 else "every problem closes by the same amount",
        },
        {
            "metric": "monotone",
            "k": k_max,
            "estimate": float(narrower_B.mean()),
            "n": n,
            "reason": "narrows at every k" if observed else "does not narrow at every k",
        },
    ]

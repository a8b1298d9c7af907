"""Curves over k: estimates with intervals that hold point by point or all together, for one policy.

Axes: S seeds (adapters of one recipe), P problems, K values of k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.pass_at_k import pass_all_k, pass_at_k
from storage.resampling import resample_classes
from tasks.domain.statistics.means import ONE_PROBLEM, SILENT, combined, folded, together
from tasks.domain.statistics.seeded import by_seed, same_adapters
from tasks.domain.statistics.shares import proportions

METRICS = {"pass@k": pass_at_k, "pass^k": pass_all_k}
INCOMPLETE = "no problem was evaluated under every seed"


@dataclass(frozen=True, slots=True)
class KCurve:
    """One policy on one slice, on the problems that each of its seeds was asked. values: metric → (S, P, K), masked
    where n < k; cluster_P: which problems are near-duplicates; cost_P: tokens a rollout of each problem; trained:
    whether its seeds are trainings, adapter_S; rollouts: fewest of a group; drawn: all of them."""

    problem_P: np.ndarray
    cluster_P: np.ndarray
    values: dict[str, np.ma.MaskedArray]
    rollouts: int
    policies: int
    cost_P: np.ndarray | None
    tokens_per_rollout: float | None
    trained: bool
    drawn: int
    size_SP: np.ndarray
    correct_SP: np.ndarray
    adapter_S: np.ndarray

    @property
    def seeds(self) -> int:
        """Adapters, or the one policy without."""
        return len(self.values["pass@k"])

    def by_cluster(self, metric: str = "pass@k") -> np.ndarray:
        """(S, C, K) values in which near-duplicate problems are one; columns with n < k are not to be read."""
        return folded(self.values[metric].data, self.cluster_P)

    def rows(self, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
        """Columns: metric, k, estimate, intervals, n, rollouts, policies, tokens, holds_for, reason."""
        return [row for metric in METRICS for row in self._rows(metric, ks, draws, seed)]

    def _rows(self, metric: str, ks: Sequence[int], draws: int, seed: int) -> list[dict[str, Any]]:
        values_SCK = self.by_cluster(metric)
        known = self.known(ks)
        shared = {"metric": metric, "n": len(self.problem_P), "clusters": values_SCK.shape[1]}
        shared |= {"rollouts": self.rollouts, "policies": self.policies}
        found: dict[int, dict[str, Any]] = {}
        if known:
            told = levels(values_SCK[:, :, known], self.trained)
            beyond = together(values_SCK[:, :, known].mean(axis=0), draws, seed)
            wide = levels(values_SCK[:, :, known], self.trained, beyond)
            for i, row, band in zip(known, told, wide, strict=True):
                found[i] = row | {"low_simultaneous": band["low"], "high_simultaneous": band["high"]}
        why = INCOMPLETE if not len(self.problem_P) else "a problem has {} rollouts, fewer than k = {}"
        return [
            shared
            | {"k": k, "tokens": None if self.tokens_per_rollout is None else k * self.tokens_per_rollout}
            | found.get(i, {"reason": why.format(self.rollouts, k)})
            for i, k in enumerate(ks)
        ]

    def known(self, ks: Sequence[int]) -> list[int]:
        """Places of the k for which every problem has rollouts enough."""
        masked_K = np.ma.getmaskarray(self.values["pass@k"]).any(axis=(0, 1))
        return [i for i in range(len(ks)) if len(self.problem_P) and not masked_K[i]]


def levels(
    values_SPV: np.ndarray, trained: bool, beyond: float = 1.0, *, gradual: bool = False
) -> list[dict[str, Any]]:
    """One row a column: the mean share with its interval (`proportions`), what that holds for, and why where there is
    none."""
    mean = combined([(1.0, values_SPV)], [trained])
    low_V, high_V = proportions(values_SPV, trained, beyond, gradual=gradual)
    why = {"low": None, "high": None, "reason": ONE_PROBLEM if mean.n < 2 else SILENT}
    return [
        {"estimate": float(at), "holds_for": mean.holds_for}
        | ({"low": float(low), "high": float(high)} if np.isfinite(low) else why)
        for at, low, high in zip(mean.estimate_V, low_V, high_V, strict=True)
    ]


def k_curve(
    problem_N: np.ndarray,
    cluster_N: np.ndarray,
    adapter_N: np.ndarray,
    policy_N: np.ndarray,
    size_N: np.ndarray,
    correct_N: np.ndarray,
    tokens_N: np.ndarray,
    ks: Sequence[int],
) -> KCurve:
    """From groups, one row per (problem, policy). Groups of one adapter and problem are averaged; adapter 0 is none,
    and a policy without one has no seeds. Errors: ValueError if ks holds a k below 1."""
    per_group = {name: estimate(size_N, correct_N, ks).filled(0.0) for name, estimate in METRICS.items()}
    rollouts, tokens = int(size_N.sum()), float(tokens_N.sum())  # imported counts have no tokens: not a number
    known = np.isfinite(tokens) and rollouts > 0
    cost_N = tokens_N / size_N if known else np.zeros(len(size_N))
    found = by_seed(problem_N, adapter_N, np.column_stack([*per_group.values(), cluster_N, size_N, correct_N, cost_N]))
    mask_K = size_N.min() < np.asarray(ks) if len(size_N) else np.ones(len(ks), bool)
    values = {}
    for i, name in enumerate(METRICS):
        one = found.values_SPV[:, :, i * len(ks) : (i + 1) * len(ks)]
        values[name] = np.ma.MaskedArray(one, mask=np.broadcast_to(mask_K, one.shape))
    return KCurve(
        found.problem_P,
        found.values_SPV[:1, :, -4].reshape(-1),
        values,
        int(size_N.min()) if len(size_N) else 0,
        len(np.unique(policy_N)),
        found.values_SPV[:, :, -1].mean(axis=0) if known else None,
        tokens / rollouts if known else None,
        found.trained,
        rollouts,
        found.values_SPV[:, :, -3],
        found.values_SPV[:, :, -2],
        found.adapter_S,
    )


def same_seeds(curves: Sequence[KCurve]) -> bool:
    """Whether the curves with several seeds are of the same adapters."""
    return same_adapters([curve.adapter_S for curve in curves])


def on_common(curves: Sequence[KCurve]) -> tuple[int, list[np.ndarray]]:
    """(problems, values_SCK of pass@k of each curve) on the problems that all of them have, in one order,
    near-duplicates folded into one."""
    problem_P = curves[0].problem_P
    for curve in curves[1:]:
        problem_P = np.intersect1d(problem_P, curve.problem_P)
    places = [np.searchsorted(curve.problem_P, problem_P) for curve in curves]
    cluster_P = curves[0].cluster_P[places[0]]
    return len(problem_P), [
        folded(c.values["pass@k"].data[:, at], cluster_P) for c, at in zip(curves, places, strict=True)
    ]


def bootstrap_columns(values_PV: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(means_V, draws_BV) of columns drawn together over problems. Equal rows are one class of the multinomial."""
    classes_CV, counts_C = np.unique(values_PV, axis=0, return_counts=True)
    drawn = resample_classes(counts_C, draws, seed) @ classes_CV
    return values_PV.mean(axis=0), drawn


def doublings(curve: KCurve, ks: Sequence[int]) -> list[dict[str, Any]]:
    """pass@k with its interval, and by how much each k exceeds the k before it. No k may exceed a group's size."""
    if not len(curve.problem_P):
        return [{"k": k, "reason": INCOMPLETE} for k in ks]
    values_SCK = curve.by_cluster()
    rows = [{"k": k} | row for k, row in zip(ks, levels(values_SCK, curve.trained), strict=True)]
    if len(ks) < 2:
        return rows
    more = combined([(1.0, np.diff(values_SCK, axis=2))], [curve.trained], reach=1.0)
    low_V, high_V = more.interval()
    for row, at, low, high in zip(rows[1:], more.estimate_V, low_V, high_V, strict=True):
        row["doubling"] = float(at)
        if np.isfinite(low):
            row |= {"doubling_low": max(0.0, float(low)), "doubling_high": float(high)}
    return rows

"""Tests that flip signs: of like policies either sign of a problem's difference is as likely, or of the sum over a
cluster of near-duplicates. Axes: P problems or clusters, V columns."""

from __future__ import annotations

from typing import Any

import numpy as np

FLIPS = 10_000
EXACT_FLIPS = 20  # all 2^n sign patterns up to here
EXACT_RANKS = 13  # as in scipy, which takes half a second for each test with ties
ROUNDING = 1e-9  # of the largest difference: nearer than this two are equal


def sign_flip(d_P: np.ndarray, *, draws: int, seed: int) -> float:
    """Two-sided p of the mean under random signs: exact over all 2^n patterns of n ≤ 20 nonzero ones, else `draws` of
    them with the observed one counted in, so that it is never 0. d_PV: of the length of the mean vector.

    >>> sign_flip(np.array([1.0, 1.0, 1.0]), draws=10, seed=0)
    0.25
    """
    d_PV = np.asarray(d_P, np.float64).reshape(len(d_P), -1)
    d_PV = d_PV[d_PV.any(axis=1)]  # a zero is its own mirror, so that many of them leave the exact test in reach
    observed, n = _length(d_PV.sum(axis=0)), len(d_PV)
    slack = 1e-12 * np.abs(d_PV).sum()
    if n <= EXACT_FLIPS:
        sums = np.zeros((1, d_PV.shape[1]))
        for value in d_PV[1:]:  # the first sign may be fixed: the other half mirrors it
            sums = np.concatenate([sums + value, sums - value])
        return float((_length(sums + d_PV[0]) >= observed - slack).mean()) if n else 1.0
    rng, extreme = np.random.default_rng(seed), 0
    chunk = max(1, (1 << 22) // n)
    for start in range(0, draws, chunk):
        signs = rng.integers(0, 2, size=(min(chunk, draws - start), n), dtype=np.int8) * 2.0 - 1.0
        extreme += int((_length(signs @ d_PV) >= observed - slack).sum())
    return (extreme + 1) / (draws + 1)


def _length(sums: np.ndarray) -> np.ndarray:
    return np.abs(np.hypot.reduce(sums, axis=-1))


def wilcoxon(d_P: np.ndarray, cluster_P: np.ndarray | None = None) -> float | None:
    """Two-sided signed-rank p, zeros dropped; null if nothing is left. What is equal up to rounding ties, also with 0.

    Few problems: the sign-flip test of the signed ranks, which is the exact test, ties or not, at once. With
    near-duplicates (problems of one cluster): sign flips of the sums over clusters.

    >>> wilcoxon(np.array([1.0, 2, 3])), wilcoxon(np.array([0.0])) is None
    (0.25, True)
    """
    from scipy import stats

    level_P = np.sign(d_P) * _levels(np.abs(d_P))
    nonzero = level_P[level_P != 0]
    if len(nonzero) == 0:
        return None
    if cluster_P is not None and len(np.unique(cluster_P)) < len(cluster_P):
        at_P = np.unique(cluster_P[level_P != 0], return_inverse=True)[1]
        sums_C = np.bincount(at_P, weights=np.sign(nonzero) * stats.rankdata(np.abs(nonzero)))
        return sign_flip(sums_C, draws=FLIPS, seed=0)
    if len(nonzero) <= EXACT_RANKS:
        return sign_flip(np.sign(nonzero) * stats.rankdata(np.abs(nonzero)), draws=0, seed=0)
    result: Any = stats.wilcoxon(nonzero, method="auto")
    return float(result.pvalue)


def _levels(size_P: np.ndarray) -> np.ndarray:
    """Which of the distinct sizes each is, 0 for those that are 0.

    >>> _levels(np.array([0.1, 0.3 - 0.2, 0.5, 0.1 + 0.2 - 0.3])).tolist()
    [1, 1, 2, 0]
    """
    order_P = np.argsort(size_P, kind="stable")
    steps_P = np.diff(size_P[order_P], prepend=0.0) > ROUNDING * size_P.max(initial=0.0)
    level_P = np.empty(len(size_P), np.int64)
    level_P[order_P] = np.cumsum(steps_P)
    return level_P

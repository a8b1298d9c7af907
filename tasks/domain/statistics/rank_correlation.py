"""Spearman's rank correlation over problems, and how surely it is known. Axes: P problems, C clusters of them.

Interval: jackknife over clusters of near-duplicates of Fisher's z, Student's t (coverage: docs/coverage.md). Of more
than MOST clusters, that many groups of them are left out in turn (the delete-a-group jackknife: Kott 2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from storage.resampling import LEVEL
from tasks.domain.statistics.means import uneven

LEAST, MOST = 5, 1000
#: Numbers of a matrix that are held at once.
HELD = 250_000
#: Values that differ less are one value summed up in another order.
DIGITS = 12
FEW = f"fewer than {LEAST} problems"
ALIKE = "every problem is alike in one of the two"
UNEVEN = "a few large clusters of near-duplicates hold most problems: no interval"
ONE_ORDER = "both order the problems the same way, or the reverse: no interval"


@dataclass(frozen=True, slots=True)
class Correlation:
    estimate: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


def rank_correlation(x_P: np.ndarray, y_P: np.ndarray, cluster_P: np.ndarray) -> Correlation:
    """
    >>> x = np.arange(8.0)
    >>> found = rank_correlation(x, np.array([1.0, 0, 2, 4, 3, 5, 7, 6]), x)
    >>> round(found.estimate, 4), round(found.low, 2), round(found.high, 2)
    (0.9286, 0.79, 0.98)
    """
    return rank_correlations([x_P, y_P], [(0, 1)], cluster_P)[0]


def rank_correlations(
    several: Sequence[np.ndarray], pairs: Sequence[tuple[int, int]], cluster_P: np.ndarray
) -> list[Correlation]:
    """Of each pair of the values, whose ranks without each cluster are made once for all pairs."""
    clusters, at_P = np.unique(cluster_P, return_inverse=True)
    if len(clusters) < LEAST:
        return [Correlation(None, reason=FEW)] * len(pairs)
    uneven_clusters = len(clusters) < len(at_P) and uneven(at_P)
    at_P = at_P % MOST
    n = int(at_P.max()) + 1
    needed = sorted({one for pair in pairs for one in pair})
    level_P = {one: np.unique(several[one].round(DIGITS), return_inverse=True)[1] for one in needed}
    rhos = _without(np.array([n]), at_P, level_P, pairs)[:, 0]
    sure = [] if uneven_clusters else [pair for pair, rho in zip(pairs, rhos, strict=True) if np.isfinite(rho)]
    each = max(1, HELD // len(at_P))
    without_C = {}
    if sure:
        starts = range(0, n, each)
        parts = [_without(np.arange(start, min(start + each, n)), at_P, level_P, sure) for start in starts]
        without_C = dict(zip(sure, np.hstack(parts), strict=True))
    return [_told(float(rho), without_C.get(pair)) for pair, rho in zip(pairs, rhos, strict=True)]


def _told(rho: float, without_C: np.ndarray | None) -> Correlation:
    """without_C: with each cluster left out; null where clusters are too uneven for that."""
    from scipy.special import stdtrit

    if not np.isfinite(rho):
        return Correlation(None, reason=ALIKE)
    if without_C is None:
        return Correlation(rho, reason=UNEVEN)
    if not np.isfinite(without_C).all() or max(abs(rho), np.abs(without_C).max()) > 1 - 1e-9:
        return Correlation(rho, reason=ONE_ORDER if np.isfinite(without_C).all() else ALIKE)
    z_C, n = np.arctanh(without_C), len(without_C)
    error = float(np.sqrt((n - 1) / n * ((z_C - z_C.mean()) ** 2).sum()))
    if error < 1e-12:
        return Correlation(rho, reason=ONE_ORDER)
    half = -float(stdtrit(n - 1, (1 - LEVEL) / 2)) * error
    return Correlation(rho, float(np.tanh(np.arctanh(rho) - half)), float(np.tanh(np.arctanh(rho) + half)))


def _without(
    left_C: np.ndarray, at_P: np.ndarray, level_P: Mapping[int, np.ndarray], pairs: Sequence[tuple[int, int]]
) -> np.ndarray:
    """One correlation_C a pair where each of these groups of problems is left out in turn. level_P: of each of several
    the places of its values among the different ones."""
    out_CP = left_C[:, None] == at_P
    centred = {one: _centred(_ranks(of_P, out_CP), ~out_CP) for one, of_P in level_P.items()}
    return np.array([_correlated(centred[one], centred[other]) for one, other in pairs])


def _ranks(level_P: np.ndarray, out_CP: np.ndarray) -> np.ndarray:
    """(C, P) mid-ranks where the problems of each row of out_CP are left out; theirs are not to be read.

    >>> _ranks(np.array([1, 0, 1]), np.array([[False, False, False], [False, True, False]]))[:, [0, 2]].tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    levels = int(level_P.max()) + 1
    count_CL = np.tile(np.bincount(level_P, minlength=levels), (len(out_CP), 1))
    row_N, place_N = np.nonzero(out_CP)
    np.subtract.at(count_CL, (row_N, level_P[place_N]), 1)
    return (np.cumsum(count_CL, axis=1) - 0.5 * count_CL)[:, level_P]


def _centred(rank_CP: np.ndarray, kept_CP: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distances away_CP from the mean of each row's kept columns, sum_C of their squares)."""
    n_C1 = kept_CP.sum(axis=1, keepdims=True)
    away_CP = np.where(kept_CP, rank_CP - (rank_CP * kept_CP).sum(axis=1, keepdims=True) / n_C1, 0.0)
    return away_CP, (away_CP**2).sum(axis=1)


def _correlated(x: tuple[np.ndarray, np.ndarray], y: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Pearson's correlation_C of two that are centred; NaN where either does not vary."""
    size_C = np.sqrt(x[1] * y[1])
    safe_C = np.where(size_C > 1e-9, size_C, np.nan)
    return (x[0] * y[0]).sum(axis=1) / safe_C

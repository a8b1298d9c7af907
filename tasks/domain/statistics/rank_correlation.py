"""Spearman's rank correlation over problems, and how surely it is known. Axes: P problems, C clusters of them.

Interval: jackknife over clusters of near-duplicates of Fisher's z, Student's t (coverage: docs/coverage.md). Of more
than MOST clusters, that many groups of them are left out in turn (the delete-a-group jackknife: Kott 2001).
"""

from __future__ import annotations

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
    from scipy.special import stdtrit

    clusters, at_P = np.unique(cluster_P, return_inverse=True)
    if len(clusters) < LEAST:
        return Correlation(None, reason=FEW)
    uneven_clusters = len(clusters) < len(at_P) and uneven(at_P)
    at_P = at_P % MOST
    n = int(at_P.max()) + 1
    level_2P = [np.unique(values_P.round(DIGITS), return_inverse=True)[1] for values_P in (x_P, y_P)]
    rho = float(_without(np.array([n]), at_P, *level_2P)[0])
    if not np.isfinite(rho):
        return Correlation(None, reason=ALIKE)
    if uneven_clusters:
        return Correlation(rho, reason=UNEVEN)
    each = max(1, HELD // len(at_P))
    without_C = np.concatenate(
        [_without(np.arange(start, min(start + each, n)), at_P, *level_2P) for start in range(0, n, each)]
    )
    if not np.isfinite(without_C).all() or max(abs(rho), np.abs(without_C).max()) > 1 - 1e-9:
        return Correlation(rho, reason=ONE_ORDER if np.isfinite(without_C).all() else ALIKE)
    z_C = np.arctanh(without_C)
    error = float(np.sqrt((n - 1) / n * ((z_C - z_C.mean()) ** 2).sum()))
    if error < 1e-12:
        return Correlation(rho, reason=ONE_ORDER)
    half = -float(stdtrit(n - 1, (1 - LEVEL) / 2)) * error
    return Correlation(rho, float(np.tanh(np.arctanh(rho) - half)), float(np.tanh(np.arctanh(rho) + half)))


def _without(left_C: np.ndarray, at_P: np.ndarray, x_P: np.ndarray, y_P: np.ndarray) -> np.ndarray:
    """The correlation_C where each of these groups of problems is left out in turn. x_P, y_P: places of their values
    among the different ones."""
    out_CP = left_C[:, None] == at_P
    return _correlated(_ranks(x_P, out_CP), _ranks(y_P, out_CP), ~out_CP)


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


def _correlated(x_CP: np.ndarray, y_CP: np.ndarray, kept_CP: np.ndarray) -> np.ndarray:
    """Pearson's correlation_C of each row's kept columns; NaN where either does not vary."""
    n_C1 = kept_CP.sum(axis=1, keepdims=True)
    away_x_CP = np.where(kept_CP, x_CP - (x_CP * kept_CP).sum(axis=1, keepdims=True) / n_C1, 0.0)
    away_y_CP = np.where(kept_CP, y_CP - (y_CP * kept_CP).sum(axis=1, keepdims=True) / n_C1, 0.0)
    size_C = np.sqrt((away_x_CP**2).sum(axis=1) * (away_y_CP**2).sum(axis=1))
    safe_C = np.where(size_C > 1e-9, size_C, np.nan)
    return (away_x_CP * away_y_CP).sum(axis=1) / safe_C

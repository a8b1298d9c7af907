"""Spearman's rank correlation over problems, and how surely it is known. Axes: P problems, C clusters of them.

Interval: jackknife over clusters of near-duplicates of Fisher's z, Student's t (coverage: docs/coverage.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.resampling import LEVEL
from tasks.domain.statistics.means import uneven

LEAST = 5
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
    member_CP = np.arange(len(clusters))[:, None] == at_P
    all_1P, kept_CP = np.ones((1, len(x_P)), bool), ~member_CP
    rho = float(_correlated(_ranks(x_P, ~all_1P), _ranks(y_P, ~all_1P), all_1P)[0])
    if not np.isfinite(rho):
        return Correlation(None, reason=ALIKE)
    if len(clusters) < len(at_P) and uneven(at_P):
        return Correlation(rho, reason=UNEVEN)
    without_C = _correlated(_ranks(x_P, member_CP), _ranks(y_P, member_CP), kept_CP)
    if not np.isfinite(without_C).all() or max(abs(rho), np.abs(without_C).max()) > 1 - 1e-9:
        return Correlation(rho, reason=ONE_ORDER if np.isfinite(without_C).all() else ALIKE)
    z_C, n = np.arctanh(without_C), len(clusters)
    error = float(np.sqrt((n - 1) / n * ((z_C - z_C.mean()) ** 2).sum()))
    if error < 1e-12:
        return Correlation(rho, reason=ONE_ORDER)
    half = -float(stdtrit(n - 1, (1 - LEVEL) / 2)) * error
    return Correlation(rho, float(np.tanh(np.arctanh(rho) - half)), float(np.tanh(np.arctanh(rho) + half)))


def _ranks(x_P: np.ndarray, without_CP: np.ndarray) -> np.ndarray:
    """(C, P) mid-ranks where the problems of each row of without_CP are left out; theirs are not to be read."""
    x_P = x_P.round(DIGITS)
    below_PP = (x_P[:, None] < x_P) + 0.5 * (x_P[:, None] == x_P)
    return below_PP.sum(axis=0) - without_CP.astype(np.float64) @ below_PP


def _correlated(x_CP: np.ndarray, y_CP: np.ndarray, kept_CP: np.ndarray) -> np.ndarray:
    """Pearson's correlation_C of each row's kept columns; NaN where either does not vary."""
    n_C1 = kept_CP.sum(axis=1, keepdims=True)
    away_x_CP = np.where(kept_CP, x_CP - (x_CP * kept_CP).sum(axis=1, keepdims=True) / n_C1, 0.0)
    away_y_CP = np.where(kept_CP, y_CP - (y_CP * kept_CP).sum(axis=1, keepdims=True) / n_C1, 0.0)
    size_C = np.sqrt((away_x_CP**2).sum(axis=1) * (away_y_CP**2).sum(axis=1))
    safe_C = np.where(size_C > 1e-9, size_C, np.nan)
    return (away_x_CP * away_y_CP).sum(axis=1) / safe_C

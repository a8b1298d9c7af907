"""The interval of a mean difference over problems, for statistics and for questions in SQL: one variance, one rule for
what was not seen. Axes: P problems, V columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from storage.resampling import LEVEL

#: Half a problem at either end of what a value can be: the variance that n problems alike leave possible.
PSEUDO = 0.5
SEEN = 2.5  # how fast the stand-in for what was not seen gives way
FEW = 17.0  # over n: what few problems show too little of in kurtosis, near the ends of what a value can be
NOTHING = 1e-24  # a variance below this is that of values that are all the same


def tail_freedom(values_PV: np.ndarray, within: bool = False) -> np.ndarray:
    """Degrees of freedom_V of the variance over problems, by their kurtosis: 2n/(kurtosis − 1), at most n − 1. For m of
    many problems that moved alike, about 2m. within: of values that have ends, which pile up there: few problems show
    too little of that kurtosis, and FEW/n is added. Gains up to a ceiling of five to ten were covered in 90 to 92 %.

    >>> tail_freedom(np.array([[1.0, 0.0], [-1, 0], [1, 0], [-1, 5]])).round(3).tolist()
    [3.0, 3.0]
    """
    n, kurtosis_V = len(values_PV), _kurtosis(values_PV)
    heavy_V = np.where(np.isfinite(kurtosis_V), kurtosis_V - 1 + within * FEW / n, 0.0)
    return np.clip(np.where(heavy_V > 0, 2 * n / np.where(heavy_V > 0, heavy_V, 1.0), n), 1.0, max(n - 1.0, 1.0))


def _kurtosis(values_PV: np.ndarray) -> np.ndarray:
    """Infinite where no problem differs."""
    away_PV = values_PV - values_PV.mean(axis=0)
    second_V, fourth_V = (away_PV**2).mean(axis=0), (away_PV**4).mean(axis=0)
    return np.where(second_V > NOTHING, fourth_V / np.where(second_V > NOTHING, second_V, 1.0) ** 2, np.inf)


def unseen_variance(values_PV: np.ndarray, reach: float) -> np.ndarray:
    """What the variance_V of the mean of values within ±reach may have besides the one that was seen: half a problem at
    either end where none differs (after Agresti and Min 2005), over (1 + m)^2.5 where m = n/kurtosis do; the power was
    chosen by what it covers (docs/coverage.md).

    >>> unseen_variance(np.array([[0.0, 1.0], [0, -1], [0, 1], [0, -1]]), 1.0).round(4)
    array([0.0333, 0.0006])
    """
    n = len(values_PV)
    return reach**2 * 2 * PSEUDO / ((n + 1) * (n + 2)) / (1 + n / _kurtosis(values_PV)) ** SEEN


def interval_over_problems(values_P: Sequence[float]) -> list[float] | None:
    """[low, high] of a mean of differences of shares, 95 %; null for one problem. What SQL calls
    `interval_over_problems(list(x order by problem_id))`.

    >>> [round(end, 3) for end in interval_over_problems([0.5, 0.0, 0.25, 0.0]) or []]
    [-0.485, 0.86]
    >>> [round(end, 3) for end in interval_over_problems([0.0] * 20) or []], interval_over_problems([0.5])
    ([-0.097, 0.097], None)
    """
    from scipy.special import stdtrit

    difference_P1 = np.asarray(values_P, np.float64)[:, None]
    n = len(difference_P1)
    if n < 2:
        return None
    at, variance = float(difference_P1.mean()), float(difference_P1.var(ddof=1)) / n
    freedom = float(tail_freedom(difference_P1, within=True)[0]) if variance > NOTHING else n - 1.0
    variance += float(unseen_variance(difference_P1, 1.0)[0])
    half = float(-stdtrit(freedom, (1 - LEVEL) / 2) * np.sqrt(variance))
    return [max(at - half, -1.0), min(at + half, 1.0)]

"""Intervals of plain counts and plain bootstraps, as publications print them; ours are in `means`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.resampling import LEVEL, percentile_ends, resample_means


@dataclass(frozen=True, slots=True)
class Interval:
    estimate: float
    low: float
    high: float


def wilson(successes: int, n: int) -> Interval | None:
    """Wilson's score interval of a proportion; null for n = 0. For independent trials: one rollout a problem.

    >>> i = wilson(14, 100); round(i.low, 4), round(i.high, 4)
    (0.0853, 0.2214)
    >>> [(i.low, i.high) for i in (wilson(0, 24), wilson(24, 24)) if i][0][0]  # 1.4e-17 by the formula
    0.0
    """
    from statsmodels.stats.proportion import proportion_confint

    if n == 0:
        return None
    ends: Any = proportion_confint(successes, n, alpha=1 - LEVEL, method="wilson")
    return Interval(successes / n, float(ends[0]) if successes else 0.0, float(ends[1]) if successes < n else 1.0)


def clopper_pearson(successes: int, n: int) -> Interval | None:
    """The exact interval of a proportion: never covers less than it says. Null for n = 0.

    >>> i = clopper_pearson(0, 25); i.low, round(i.high, 4)
    (0.0, 0.1372)
    """
    from statsmodels.stats.proportion import proportion_confint

    if n == 0:
        return None
    ends: Any = proportion_confint(successes, n, alpha=1 - LEVEL, method="beta")
    return Interval(successes / n, float(ends[0]), float(ends[1]))


def percentile(estimate: float, drawn: np.ndarray) -> Interval:
    """The percentile interval of bootstrap draws."""
    return Interval(estimate, *percentile_ends(drawn))


def bootstrap_mean(values_P: np.ndarray, draws: int, seed: int) -> Interval | None:
    """Mean over problems with its percentile interval; null without a problem.

    >>> bootstrap_mean(np.array([1.0, 1.0]), 100, 0)
    Interval(estimate=1.0, low=1.0, high=1.0)
    """
    if len(values_P) == 0:
        return None
    drawn = resample_means(np.asarray(values_P, np.float64)[:, None], draws, seed)[:, 0]
    return percentile(float(np.mean(values_P)), drawn)

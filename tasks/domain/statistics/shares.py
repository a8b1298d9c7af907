"""Means of shares in [0, 1] over problems and training seeds: intervals that hold near 0 and 1 too, where those of
`means` do not. Measured against the alternatives in docs/coverage.md.

Axes: S seeds, P problems, V columns that are judged side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from storage.rules import LEVEL, PSEUDO, percentile_ends, resample_means
from tasks.domain.statistics.means import Shifts, shifts_of

# Intervals of plain counts and plain bootstraps, as publications print them; ours are in `means`.


@dataclass(frozen=True, slots=True)
class Interval:
    estimate: float
    low: float
    high: float


def share_interval(successes: int, n: int, method: Literal["wilson", "beta"] = "wilson") -> Interval | None:
    """Wilson's score interval of a proportion, or Clopper-Pearson's exact one (`beta`); None for n = 0. For independent
    trials: one rollout a problem.

    >>> i = share_interval(14, 100); round(i.low, 4), round(i.high, 4)
    (0.0853, 0.2214)
    >>> i = share_interval(0, 25, "beta"); i.low, round(i.high, 4)
    (0.0, 0.1372)
    """
    from statsmodels.stats.proportion import proportion_confint

    if n == 0:
        return None
    ends: Any = proportion_confint(successes, n, alpha=1 - LEVEL, method=method)
    # Wilson's formula gives 1.4e-17 for 0 of 24
    return Interval(successes / n, float(ends[0]) if successes else 0.0, float(ends[1]) if successes < n else 1.0)


def bootstrap_mean(values_P: np.ndarray, draws: int, seed: int) -> Interval | None:
    """Mean over problems with its percentile interval; None without a problem.

    >>> bootstrap_mean(np.array([1.0, 1.0]), 100, 0)
    Interval(estimate=1.0, low=1.0, high=1.0)
    """
    if len(values_P) == 0:
        return None
    drawn = resample_means(np.asarray(values_P, np.float64)[:, None], draws, seed)[:, 0]
    return Interval(float(np.mean(values_P)), *percentile_ends(drawn))


SCARCE = 3.0  # successes, or failures
ROUNDING = 1e-9  # shares that differ by less are one
_normal = NormalDist()


def proportions(
    values_SPV: np.ndarray, trained: bool, beyond: float = 1.0, *, gradual: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(low_V, high_V) of means of shares in [0, 1]: Wilson's interval on the effective number of problems.

    That number gives p(1 − p)/n the variance over problems, into which half a problem at 0 and half at 1 are counted,
    less the further from an edge (`unseen`); Student's t stands for the normal quantile (`_freedom`). What seeds add is
    on the logits (`Shifts`). Where few problems' worth of successes, or of failures, were seen, the end next to the
    edge is Poisson's (Brown, Cai and DasGupta 2001). Never of width 0, never outside [0, 1]; NaN for fewer than two
    problems, and for few seeds at an edge. beyond: factor on the quantile, for bands that hold for all V together.
    gradual: values that hardly ever lie at 0 or 1: away from an edge the half problems are at the ends that were seen.

    >>> [round(float(end[0]), 3) for end in proportions(np.ones((1, 25, 1)), False)]
    [0.859, 1.0]
    >>> round(float(proportions((np.arange(100) == 0.0)[None, :, None] * 1.0, False)[0][0]), 5)  # Wilson's: 0.00172
    0.0005
    """
    n = values_SPV.shape[1]
    mean_PV = values_SPV.mean(axis=0)
    p_V = np.clip(mean_PV.mean(axis=0), 0.0, 1.0)
    if n < 2:
        return p_V + np.nan, p_V + np.nan
    more_V, ends_2V = unseen(p_V, n), np.stack([np.zeros_like(p_V), np.ones_like(p_V)])
    if gradual:
        seen_2V = np.stack([mean_PV.min(axis=0), mean_PV.max(axis=0)])
        ends_2V = np.where((more_V < PSEUDO) & (np.ptp(seen_2V, axis=0) > ROUNDING), seen_2V, ends_2V)
    whole_V = n + 2 * more_V
    middle_V = (mean_PV.sum(axis=0) + more_V * ends_2V.sum(axis=0)) / whole_V
    squares_V = (mean_PV**2).sum(axis=0) + more_V * (ends_2V**2).sum(axis=0)
    problems_V = (squares_V - whole_V * middle_V**2) / (whole_V - 1) / n
    tail = _normal.cdf(beyond * _normal.inv_cdf((1 - LEVEL) / 2))
    freedom_V = _freedom(mean_PV, middle_V, problems_V * n)
    seeds = shifts_of([(1.0, values_SPV)] if trained else [])
    return around(p_V, middle_V, problems_V, freedom_V, seeds, tail)


def around(
    p_V: np.ndarray,
    middle_V: np.ndarray,
    problems_V: np.ndarray,
    freedom_V: np.ndarray,
    seeds: Sequence[Shifts],
    tail: float = (1 - LEVEL) / 2,
) -> tuple[np.ndarray, np.ndarray]:
    """(low_V, high_V) of shares p_V. middle_V, problems_V: the share and its variance over problems with those that are
    counted in; freedom_V: that variance's degrees of freedom. See `proportions`."""
    from scipy.special import stdtrit

    q_V = stdtrit(freedom_V, tail)
    size_V = middle_V * (1 - middle_V) / problems_V
    shrink_V = q_V**2 / size_V
    centre_V = (p_V + shrink_V / 2) / (1 + shrink_V)
    half_V = np.sqrt(shrink_V * (p_V * (1 - p_V) + shrink_V / 4)) / (1 + shrink_V)
    low_V = np.minimum(centre_V - half_V, _poisson_low(size_V * p_V, 2 * tail) / size_V)
    high_V = np.maximum(centre_V + half_V, 1 - _poisson_low(size_V * (1 - p_V), 2 * tail) / size_V)
    down_V, up_V = np.maximum(p_V - low_V, 0.0), np.maximum(high_V - p_V, 0.0)
    for policy in seeds:
        t_V = stdtrit(policy.seeds - 1.0, tail)
        down_V, up_V = np.hypot(down_V, policy.half(t_V, False)), np.hypot(up_V, policy.half(t_V, True))
        down_V, up_V = (np.where(policy.silent_V, np.nan, half_V) for half_V in (down_V, up_V))
    return np.maximum(p_V - down_V, 0.0), np.minimum(p_V + up_V, 1.0)


def unseen(p_V: np.ndarray, n: int) -> np.ndarray:
    """Problems at 0, and at 1, that are counted in: half a one within SCARCE problems' worth of an edge, where n say
    little of what others are; further off less, by the square.

    >>> unseen(np.array([0.0, 0.03, 0.06, 0.5]), 100).round(4).tolist()
    [0.5, 0.5, 0.125, 0.0018]
    """
    return PSEUDO * np.minimum(1.0, SCARCE / np.maximum(n * np.minimum(p_V, 1 - p_V), SCARCE)) ** 2


def _freedom(mean_PV: np.ndarray, middle_V: np.ndarray, variance_V: np.ndarray) -> np.ndarray:
    """Degrees of freedom_V of the effective number of problems, 2n over the variance of its influence function; n − 1
    at least, 4n at most. Problems that are wholly right or wrong have variance p(1 − p) whatever it is: nothing of it
    is estimated, and n − 1 would be too few.

    >>> half = np.array([[0.0], [1.0], [0.0], [1.0]]); _freedom(half, half.mean(axis=0), half.var(axis=0)).tolist()
    [16.0]
    """
    n, away_PV = len(mean_PV), mean_PV - middle_V
    influence_PV = away_PV**2 / variance_V - 1 - (1 - 2 * middle_V) * away_PV / (middle_V * (1 - middle_V))
    return np.clip(2 * n / np.maximum((influence_PV**2).mean(axis=0), 1e-9), n - 1.0, 4.0 * n)


def _poisson_low(seen_V: np.ndarray, tail: float) -> np.ndarray:
    """The mean_V of a Poisson distribution of which so many, or more, are seen with this chance; more than SCARCE are
    left to Wilson's interval."""
    from scipy.special import gammaincinv

    return np.where(seen_V <= SCARCE, gammaincinv(np.clip(seen_V, 1e-9, SCARCE), tail), np.inf)

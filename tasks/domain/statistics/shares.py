"""Means of shares in [0, 1] over problems and training seeds, with intervals that also hold near 0 and 1.

The intervals of `means` do not hold near 0 and 1. docs/coverage.md compares the coverage of several methods. Axes: S
seeds, P problems, V columns that are tested side by side.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from storage.estimates import LEVEL, PSEUDO
from tasks.domain.statistics.means import Shifts, shifts_of


def share_interval(successes: int, n: int, method: Literal["wilson", "beta"] = "wilson") -> tuple[float, float]:
    """Return (low, high) for independent trials: Wilson's score interval, or Clopper-Pearson's exact one (`beta`).

    >>> [round(end, 4) for end in (*share_interval(14, 100), *share_interval(0, 25, "beta"))]
    [0.0853, 0.2214, 0.0, 0.1372]
    """
    from statsmodels.stats.proportion import proportion_confint

    ends: Any = proportion_confint(successes, n, alpha=1 - LEVEL, method=method)
    # rounding in Wilson's formula gives 1.4e-17 for 0 of 24
    return float(ends[0]) if successes else 0.0, float(ends[1]) if successes < n else 1.0


SCARCE = 3.0  # number of successes or failures that counts as few
ROUNDING = 1e-9  # shares that differ by less are equal
_normal = NormalDist()


def proportions(
    values_SPV: np.ndarray, trained: bool, beyond: float = 1.0, *, gradual: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (low_V, high_V) of means of shares in [0, 1]: Wilson's interval on the effective number of problems.

    The effective number is the n for which p(1 − p)/n equals the variance over problems, after adding invented problems
    (`unseen`): up to half a problem of share 0, and as much of share 1. Student's t replaces the normal quantile
    (`_freedom`). Seeds add variance on the logits (`Shifts`). With very few successes or failures, the end next to the
    edge is Poisson's (Brown, Cai and DasGupta 2001). So the width is never 0, and the ends stay in [0, 1]. Both ends
    are NaN for fewer than two problems, and for few seeds at an edge. beyond: factor on the quantile, for simultaneous
    intervals. gradual: values are rarely 0 or 1. Away from the edges, the added problems then have the smallest and the
    largest value.

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
    """Return (low_V, high_V) of shares p_V, see `proportions`. middle_V, problems_V: share and variance over problems,
    including the invented ones. freedom_V: degrees of freedom of that variance."""
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
    """Return how many invented problems of share 0 (and as many of share 1) join n problems of mean share p.

    The number is one half if at most SCARCE of the n are correct, or wrong. With m of them it is (SCARCE/m)² of that.

    >>> unseen(np.array([0.0, 0.03, 0.06, 0.5]), 100).round(4).tolist()
    [0.5, 0.5, 0.125, 0.0018]
    """
    return PSEUDO * np.minimum(1.0, SCARCE / np.maximum(n * np.minimum(p_V, 1 - p_V), SCARCE)) ** 2


def _freedom(mean_PV: np.ndarray, middle_V: np.ndarray, variance_V: np.ndarray) -> np.ndarray:
    """Return the degrees of freedom_V of the effective number of problems: 2n divided by the variance of its influence
    function, limited to n − 1 … 4n. If all rollouts of a problem agree, p(1 − p) need not be estimated.

    >>> half = np.array([[0.0], [1.0], [0.0], [1.0]]); _freedom(half, half.mean(axis=0), half.var(axis=0)).tolist()
    [16.0]
    """
    n, away_PV = len(mean_PV), mean_PV - middle_V
    influence_PV = away_PV**2 / variance_V - 1 - (1 - 2 * middle_V) * away_PV / (middle_V * (1 - middle_V))
    return np.clip(2 * n / np.maximum((influence_PV**2).mean(axis=0), 1e-9), n - 1.0, 4.0 * n)


def _poisson_low(seen_V: np.ndarray, tail: float) -> np.ndarray:
    """Return the Poisson mean_V with chance `tail` of at least seen_V events; ∞ if seen_V is above SCARCE."""
    from scipy.special import gammaincinv

    return np.where(seen_V <= SCARCE, gammaincinv(np.clip(seen_V, 1e-9, SCARCE), tail), np.inf)

"""What several seeds of one recipe say together beside the mean: the interquartile mean, which a lucky or a broken
seed does not move, and how often a seed of one recipe beats one of another.

Source: Agarwal et al. 2021 (arXiv 2108.13264).
Axes: S seeds, P problems.
"""

from __future__ import annotations

import numpy as np

from storage.resampling import LEVEL, resample_classes
from tasks.domain.statistics.shares import around, proportions, unseen
from tasks.domain.statistics.spread import Shifts

DRAWS = 400  # for a standard error only


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half: the lowest and the highest quarter are cut off, in fractions where needed.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])), interquartile_mean(np.array([1.0, 2.0, 3.0]))
    (2.0, 2.0)
    """
    ordered = np.sort(scores.ravel())
    n = len(ordered)
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    return float(np.diff(edges) @ ordered / 0.5)


def over_seeds_and_sources(parts_SP: list[np.ndarray], seed: int) -> tuple[float, float, float]:
    """(estimate, low, high) of the interquartile mean over seeds × sources. parts_SP: a source's values by seed and
    problem. Ends are NaN for fewer than three seeds.

    The variance is a bootstrap's over the problems of each source, with what they leave unseen near an edge, and a
    jackknife's over seeds; the interval is that of a share (`shares.around`), so that it has a width at 0 and 1 too.
    """
    seeds = len(parts_SP[0])
    scores = np.stack([part.mean(axis=1) for part in parts_SP])
    at = interquartile_mean(scores)
    if seeds < 3:
        return at, np.nan, np.nan
    without = np.array([interquartile_mean(np.delete(scores, s, axis=1)) for s in range(seeds)])
    between = float((seeds - 1) / seeds * ((without - without.mean()) ** 2).sum())
    drawn = np.stack(
        [resample_classes(np.ones(p.shape[1], np.int64), DRAWS, seed + i) @ p.T for i, p in enumerate(parts_SP)], axis=1
    )
    within = float(np.var([interquartile_mean(one) for one in drawn], ddof=1))
    n, at_V = sum(p.shape[1] for p in parts_SP), np.array([at])
    more_V = unseen(at_V, n)
    middle_V = (n * at_V + more_V) / (n + 2 * more_V)
    squares_V = n * (n * within + (at_V - middle_V) ** 2) + more_V * (middle_V**2 + (1 - middle_V) ** 2)
    freedom_V = np.array([max(n - len(parts_SP), 1.0)])
    shift = Shifts(1.0, at_V, np.array([between]), seeds)
    low_V, high_V = around(at_V, middle_V, squares_V / (n + 2 * more_V) / n, freedom_V, [shift])
    return at, float(low_V[0]), float(high_V[0])


def improvement_of_pairs(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """The same where the s-th seed of both is one adapter: the chance that it scores higher under the first, ties
    counting half, with the interval of a share of seeds.

    >>> [round(v, 3) for v in improvement_of_pairs(np.array([3.0, 4, 5, 6, 7]), np.array([2.0, 3, 4, 5, 6]))]
    [1.0, 0.489, 1.0]
    """
    won_1S1 = np.where(first_S == second_S, 0.5, first_S > second_S)[None, :, None]
    low_V, high_V = proportions(won_1S1, trained=False)
    return float(won_1S1.mean()), float(low_V[0]), float(high_V[0])


def improvement(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """(estimate, low, high) of the chance that a seed of the first recipe scores higher than one of the second, ties
    counting half. The interval is a score interval, never of width 0. Source: Newcombe 2006, part 2, method 5.

    >>> [round(v, 3) for v in improvement(np.array([3.0, 4, 5]), np.array([1.0, 2, 3]))]
    [0.944, 0.448, 0.997]
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    away = first_S[:, None] - second_S[None, :]
    at, m, n = float(((away > 0) + 0.5 * (away == 0)).mean()), len(first_S), len(second_S)
    z, more = float(norm.ppf((1 + LEVEL) / 2)), (m + n) / 2 - 1

    def excess(theta: float) -> float:
        variance = theta * (1 - theta) * (1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / (m * n)
        return (at - theta) ** 2 - z * z * variance

    inside = min(max(at, 1e-9), 1 - 1e-9)  # at 0 and 1 themselves the variance is 0
    low = 0.0 if at == 0 else float(brentq(excess, 0.0, inside))  # type: ignore[arg-type]
    high = 1.0 if at == 1 else float(brentq(excess, inside, 1.0))  # type: ignore[arg-type]
    return at, low, high

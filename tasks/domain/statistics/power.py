"""Power of a planned comparison: how often an effect of some size would be found, and the smallest that mostly would.

Studies are simulated and tested as a real one is (`means.combined`). Difficulty is Beta(0.277, 1.322), the fit to the
published panel screening; the effect is a shift in logits, the same on average for every problem, with its own spread
between problems; a seed's shift is the same for all problems.

Axes: S seeds of an arm, P problems, V simulated studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from storage.rules import pass_at_k
from tasks.domain.statistics.means import POWER, Means, combined
from tasks.domain.statistics.shares import share_interval

Question = Literal["accuracy", "gains", "diversity"]
DIFFICULTY = (0.277, 1.322)
HETEROGENEITY = 0.5  # standard deviation of the shift between problems, logits
#: Standard deviation of a problem's difference in mean pairwise distance: the published study's two arms, 4 traces.
DISTANCE_SD = 0.05
#: Where the search for a detectable effect begins, and how many studies each of its rounds has.
FIRST, ROUNDS = 0.05, (100, 200, 400, 1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is asked of whom. `accuracy`: two policies on the same problems; `gains`: two arms before training and
    after; `diversity`: mean pairwise distance. seeds: trainings of each, whose accuracy (diversity: distance) varies by
    seed_sd. k: of the pass@k that is compared."""

    num_problems: int
    group_size: int
    question: Question = "accuracy"
    seeds: int = 1
    seed_sd: float = 0.0
    k: int = 1
    difficulty: tuple[float, float] = DIFFICULTY
    heterogeneity: float = HETEROGENEITY

    def __post_init__(self) -> None:
        if self.k > self.group_size:
            raise ValueError(f"pass@{self.k} needs groups of at least {self.k} rollouts")
        if self.question == "diversity" and self.group_size < 2:
            raise ValueError("diversity needs groups of at least 2 rollouts")


@dataclass(frozen=True, slots=True)
class Plan:
    """power: share of the simulated studies that find `effect` on its side of 0, with its Wilson interval. detectable:
    the effect that 0.8 of them would find; null where no policy can have it."""

    effect: float
    num_problems: int
    group_size: int
    power: float
    low: float
    high: float
    detectable: float | None


def difficulty_of_mean(mean: float) -> tuple[float, float]:
    """Return the Beta distribution of this mean that is as spread out as the published one.

    >>> [round(part, 3) for part in difficulty_of_mean(0.5)]
    [0.8, 0.8]
    """
    whole = sum(DIFFICULTY)
    return mean * whole, (1 - mean) * whole


def difficulty_of_counts(counts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the Beta distribution with the mean and the spread between problems of measured groups, by moments.
    counts: (rollouts, correct ones) of each problem.

    Errors: ValueError if the groups do not tell: fewer than 2 rollouts each, all alike, or spread less than by chance.

    >>> [round(part, 2) for part in difficulty_of_counts([(8, 0), (8, 0), (8, 2), (8, 8)])]
    [0.1, 0.23]
    """
    n_P, c_P = np.array([n for n, _ in counts if n > 1], float), np.array([c for n, c in counts if n > 1], float)
    if len(n_P) < 2 or not 0 < c_P.sum() < n_P.sum():
        raise ValueError("its groups are too few, too small or all alike to tell a difficulty")
    mean = c_P.sum() / n_P.sum()
    # of two rollouts of one problem: how much more often both are correct than by the mean alone
    both = (c_P * (c_P - 1)).sum() / (n_P * (n_P - 1)).sum()
    alike = (both - mean**2) / (mean * (1 - mean))
    if not 0 < alike < 1:
        raise ValueError("its problems differ no more than chance makes them")
    return float(mean * (1 / alike - 1)), float((1 - mean) * (1 / alike - 1))


def simulate(effect: float, design: Design, *, alpha: float = 0.05, trials: int = 2000, seed: int = 0) -> Plan:
    """Power of the project's own test at `alpha`. Errors: ValueError if no shift has this effect.

    >>> plan = simulate(0.05, Design(num_problems=100, group_size=8), trials=400)
    >>> 0.75 < plan.power < 0.95
    True
    """
    above_T, below_T = _beyond_zero(effect, design, alpha, trials, seed)
    found_T = above_T if effect > 0 else below_T if effect < 0 else np.maximum(above_T, below_T)
    power = share_interval(int((found_T > 0).sum()), trials)
    assert power is not None
    least = detectable(design, alpha=alpha)
    return Plan(effect, design.num_problems, design.group_size, power.estimate, power.low, power.high, least)


def detectable(design: Design, *, alpha: float = 0.05) -> float | None:
    """The least effect that 0.8 of simulated studies of this design find, the same for a plan as for `power`; null
    where no policy can have one so large. What studies of one effect lack of being found, or have to spare, moves
    little with the effect: its quantile leads to the next.

    >>> 0.03 < (detectable(Design(num_problems=100, group_size=8)) or 0) < 0.06
    True
    """
    effect = FIRST
    for trials in ROUNDS:
        try:
            above_T, _ = _beyond_zero(effect, design, alpha, trials, seed=0)
        except ValueError:
            return None
        effect -= float(np.quantile(above_T, 1 - POWER, method="lower"))
        if effect >= 1:
            return None
    return effect


def _beyond_zero(effect: float, design: Design, alpha: float, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """By how much every study's interval lies above 0, and below it: positive where its p is below alpha. A study
    without an interval finds nothing."""
    ends = [means.interval(1 - alpha) for means in _studies(effect, design, trials, seed)]
    above_T, below_T = np.concatenate([low for low, _ in ends]), np.concatenate([-high for _, high in ends])
    return np.nan_to_num(above_T, nan=-np.inf), np.nan_to_num(below_T, nan=-np.inf)


def shift_for(effect: float, p_S: np.ndarray, noise_S: np.ndarray, k: int = 1) -> float:
    """The mean logit shift that moves the mean pass@k of this difficulty by `effect`.
    Errors: ValueError if none does."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    noisy_S, start = logit(p_S) + noise_S, (1 - (1 - p_S) ** k).mean()

    def moved(shift: float) -> float:
        return float((1 - (1 - expit(noisy_S + shift)) ** k).mean() - start) - effect

    low, high = -12.0, 12.0
    if moved(low) > 0 or moved(high) < 0:
        raise ValueError(f"no shift moves a mean pass@{k} of {start:.2f} by {effect:+.2f}")
    root: Any = brentq(moved, low, high)
    return float(root)


def _studies(effect: float, design: Design, trials: int, seed: int) -> Sequence[Means]:
    """The comparison of every simulated study, one a column."""
    rng, chunk = np.random.default_rng(seed), max(1, (1 << 19) // (design.num_problems * design.seeds))
    sizes = [min(chunk, trials - start) for start in range(0, trials, chunk)]
    if design.question == "diversity":
        return [_distances(effect, design, size, rng) for size in sizes]
    many_p = np.clip(rng.beta(*design.difficulty, size=200_000), 1e-9, 1 - 1e-9)
    noise = rng.normal(0, design.heterogeneity, many_p.size)
    # a problem's own shift moves the mean by itself: the first arm is moved back, so that only the effect is left
    shifts = [shift_for(e, many_p, noise, design.k) for e in (0.0, effect)]
    seed_scale = design.seed_sd / float((many_p * (1 - many_p)).mean())
    return [_shares(shifts, seed_scale, design, size, rng) for size in sizes]


def _shares(shifts: Sequence[float], seed_scale: float, design: Design, trials: int, rng: np.random.Generator) -> Means:
    from scipy.special import expit, logit

    shape = (design.num_problems, trials)
    easy = logit(np.clip(rng.beta(*design.difficulty, size=shape), 1e-9, 1 - 1e-9))

    def policy(shift: float, seeds: int) -> np.ndarray:
        own = rng.normal(0, design.heterogeneity, shape) if shift else 0.0
        shared = seed_scale * rng.normal(size=(seeds, 1, trials)) if seeds else np.zeros((1, 1, 1))
        correct_SPV = rng.binomial(design.group_size, expit(easy + own + shift + shared))
        size = np.full(correct_SPV.size, design.group_size)
        return pass_at_k(size, correct_SPV.ravel(), [design.k]).data[:, 0].reshape(correct_SPV.shape)

    if design.question == "accuracy":
        apart = [(1.0, policy(shifts[1], design.seeds)), (-1.0, policy(0.0, design.seeds))]
        return combined(apart, [True, True], reach=1.0, shares=True)
    after = [(1.0, policy(shifts[1], design.seeds)), (-1.0, policy(shifts[0], design.seeds))]
    before = [(-1.0, policy(0.0, 0)), (1.0, policy(0.0, 0))]
    return combined([*after, *before], [True, True, False, False], reach=2.0, shares=True)


def _distances(effect: float, design: Design, trials: int, rng: np.random.Generator) -> Means:
    """Of more than 4 traces a problem a little more is seen than this says."""
    d_PV = rng.normal(effect, DISTANCE_SD, size=(design.num_problems, trials))
    of_seeds = design.seed_sd * rng.normal(size=(2, design.seeds, 1, trials))
    return combined([(1.0, d_PV + of_seeds[0]), (-1.0, np.zeros_like(d_PV) + of_seeds[1])], [True, True])

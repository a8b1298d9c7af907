"""Power of a planned comparison: the chance to detect an effect, and the smallest effect that has power 0.8.

Simulated studies are tested like real ones (`means.combined`). Difficulty is Beta(0.277, 1.322), which was fitted to
the published screening of the panel arm. The effect is a shift in logits that varies between problems around one mean.
A training seed shifts the logits of all problems by the same amount. Axes: S seeds of an arm, P problems, V simulated
studies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from storage.estimates import pass_at_k
from tasks.domain.statistics.means import POWER, Means, combined
from tasks.domain.statistics.shares import share_interval

Question = Literal["accuracy", "gains", "diversity"]
DIFFICULTY = (0.277, 1.322)
HETEROGENEITY = 0.5  # standard deviation of the shift between problems, logits
#: Standard deviation of a problem's difference in mean pairwise distance, between the published arms (4 traces each).
DISTANCE_SD = 0.05
#: Start of the search for a detectable effect, and the number of studies in each round.
FIRST, ROUNDS = 0.05, (100, 200, 400, 1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A planned comparison. question: `accuracy` (two policies on the same problems), `gains` (two arms before and
    after training), or `diversity` (mean pairwise distance). seeds: trainings of each arm; seed_sd: the standard
    deviation of accuracy or distance over them. k: the k of pass@k."""

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
    """The power of a design. power: share of simulated studies that find `effect` with its sign; low, high: Wilson's
    interval of it. detectable: the effect that 0.8 of the studies find; None if no policy can have it."""

    effect: float
    num_problems: int
    group_size: int
    power: float
    low: float
    high: float
    detectable: float | None


def difficulty_of_mean(mean: float) -> tuple[float, float]:
    """Return the Beta distribution with this mean and the published a + b.

    >>> [round(part, 3) for part in difficulty_of_mean(0.5)]
    [0.8, 0.8]
    """
    whole = sum(DIFFICULTY)
    return mean * whole, (1 - mean) * whole


def difficulty_of_counts(counts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Fit a Beta distribution to measured groups by moments. counts: (rollouts, correct ones) of each problem.

    Raise ValueError if groups have fewer than 2 rollouts, are all equal, or vary less than by chance.

    >>> [round(part, 2) for part in difficulty_of_counts([(8, 0), (8, 0), (8, 2), (8, 8)])]
    [0.1, 0.23]
    """
    n_P, c_P = np.array([n for n, _ in counts if n > 1], float), np.array([c for n, c in counts if n > 1], float)
    if len(n_P) < 2 or not 0 < c_P.sum() < n_P.sum():
        raise ValueError("its groups are too few, too small or too similar to estimate a difficulty")
    mean = c_P.sum() / n_P.sum()
    # excess chance that two rollouts of one problem are both correct
    both = (c_P * (c_P - 1)).sum() / (n_P * (n_P - 1)).sum()
    alike = (both - mean**2) / (mean * (1 - mean))
    if not 0 < alike < 1:
        raise ValueError("its problems do not differ more than by chance")
    return float(mean * (1 / alike - 1)), float((1 - mean) * (1 / alike - 1))


def simulate(effect: float, design: Design, *, alpha: float = 0.05, trials: int = 2000, seed: int = 0) -> Plan:
    """Return the power of the project's own test at `alpha`. Raise ValueError if no shift has this effect.

    >>> plan = simulate(0.05, Design(num_problems=100, group_size=8), trials=400)
    >>> 0.75 < plan.power < 0.95
    True
    """
    above_T, below_T = _beyond_zero(effect, design, alpha, trials, seed)
    found_T = above_T if effect > 0 else below_T if effect < 0 else np.maximum(above_T, below_T)
    found, least = int((found_T > 0).sum()), detectable(design, alpha=alpha)
    low, high = share_interval(found, trials)
    return Plan(effect, design.num_problems, design.group_size, found / trials, low, high, least)


def detectable(design: Design, *, alpha: float = 0.05) -> float | None:
    """Return the smallest effect that 0.8 of simulated studies of this design find; None if no policy can have it.

    The distance of a study's interval from 0 hardly depends on the effect, so its quantile gives the next guess.

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
    """Return how far the interval of each study lies above 0, and how far below 0; −∞ for no interval."""
    ends = [means.interval(1 - alpha) for means in _studies(effect, design, trials, seed)]
    above_T, below_T = np.concatenate([low for low, _ in ends]), np.concatenate([-high for _, high in ends])
    return np.nan_to_num(above_T, nan=-np.inf), np.nan_to_num(below_T, nan=-np.inf)


def shift_for(effect: float, p_S: np.ndarray, noise_S: np.ndarray, k: int = 1) -> float:
    """Return the mean logit shift that changes the mean pass@k by `effect`. Raise ValueError if no shift does so."""
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
    """Return the comparisons of all simulated studies, one column each."""
    rng, chunk = np.random.default_rng(seed), max(1, (1 << 19) // (design.num_problems * design.seeds))
    sizes = [min(chunk, trials - start) for start in range(0, trials, chunk)]
    if design.question == "diversity":
        return [_distances(effect, design, size, rng) for size in sizes]
    many_p = np.clip(rng.beta(*design.difficulty, size=200_000), 1e-9, 1 - 1e-9)
    noise = rng.normal(0, design.heterogeneity, many_p.size)
    # a spread of shifts moves the mean even without an effect, so the first arm gets a shift that removes this
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
    """Simulate distances. With more than 4 traces per problem the real power is a little higher."""
    d_PV = rng.normal(effect, DISTANCE_SD, size=(design.num_problems, trials))
    of_seeds = design.seed_sd * rng.normal(size=(2, design.seeds, 1, trials))
    return combined([(1.0, d_PV + of_seeds[0]), (-1.0, np.zeros_like(d_PV) + of_seeds[1])], [True, True])

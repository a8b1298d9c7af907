"""Power of a planned paired comparison: how often an effect of a given size would be found, by simulation.

Difficulty is Beta(0.277, 1.322), the fit to the published panel screening; the effect is a shift in logits, the same
on average for every problem, with its own spread between problems; the test is the paired t over problems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DIFFICULTY = (0.277, 1.322)
HETEROGENEITY = 0.5  # standard deviation of the shift between problems, logits


@dataclass(frozen=True, slots=True)
class Plan:
    """effect: difference in accuracy to find, as a share. num_problems, group_size: rollouts a problem in each arm."""

    effect: float
    num_problems: int
    group_size: int
    power: float
    low: float
    high: float


def shift_for(effect: float, p_S: np.ndarray, noise_S: np.ndarray) -> float:
    """The mean logit shift that moves the mean accuracy of this difficulty by `effect`.
    Errors: ValueError if none does."""
    from scipy.optimize import brentq

    logit_S = np.log(p_S) - np.log1p(-p_S)

    def moved(shift: float) -> float:
        return float((1 / (1 + np.exp(-(logit_S + shift + noise_S))) - p_S).mean()) - effect

    low, high = -12.0, 12.0
    if moved(low) > 0 or moved(high) < 0:
        raise ValueError(f"no shift moves a mean accuracy of {p_S.mean():.2f} by {effect:+.2f}")
    root: Any = brentq(moved, low, high)
    return float(root)


def simulate(
    effect: float,
    num_problems: int,
    group_size: int,
    *,
    alpha: float = 0.05,
    trials: int = 2000,
    seed: int = 0,
    difficulty: tuple[float, float] = DIFFICULTY,
    heterogeneity: float = HETEROGENEITY,
) -> Plan:
    """Power of the two-sided paired t at `alpha`, with its Wilson interval over the simulated studies.

    >>> plan = simulate(0.05, 100, 8, trials=400)
    >>> 0.75 < plan.power < 0.95
    True
    """
    from scipy import stats

    from tasks.domain.statistics.intervals import wilson

    rng = np.random.default_rng(seed)
    many_p = np.clip(rng.beta(*difficulty, size=200_000), 1e-9, 1 - 1e-9)
    shift = shift_for(effect, many_p, rng.normal(0, heterogeneity, many_p.size))
    found = 0
    chunk = max(1, (1 << 20) // num_problems)
    for start in range(0, trials, chunk):
        shape = (min(chunk, trials - start), num_problems)
        p = np.clip(rng.beta(*difficulty, size=shape), 1e-9, 1 - 1e-9)
        logit = np.log(p) - np.log1p(-p) + shift + rng.normal(0, heterogeneity, shape)
        d = (rng.binomial(group_size, 1 / (1 + np.exp(-logit))) - rng.binomial(group_size, p)) / group_size
        error = d.std(axis=1, ddof=1) / np.sqrt(num_problems)
        t = np.divide(d.mean(axis=1), error, out=np.zeros(shape[0]), where=error > 0)
        found += int((2 * stats.t.sf(np.abs(t), num_problems - 1) < alpha).sum())
    interval = wilson(found, trials)
    assert interval is not None
    return Plan(effect, num_problems, group_size, interval.estimate, interval.low, interval.high)

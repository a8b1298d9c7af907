"""Drift over nights: a test of whether the accuracy of a policy has changed since its evaluation. Every night has the
same problems.

Without a change, all rollouts of one problem are exchangeable. Given a problem's counts over all nights, the correct
rollouts since any night are then hypergeometric, with known mean and variance. The standardised sum of differences over
problems is the Mantel-Haenszel statistic, stratified by problem. A scan takes the largest over the possible nights of
change. The p-value comes from permutations of rollouts within problems, and is exact for any number of problems and
rollouts. The significance level of each night is chosen so that any false alarm in 90 nights has a chance of at
most 5 % (simulation: docs/coverage.md). Axes: N nights, the first being the evaluation, and P problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

#: Level of the first night that samples as much as the evaluation did, as after an upgrade.
FIRST = 0.04
#: Sum of the levels of all other nights of a quarter.
OTHERS, QUARTER = 0.01, 90
#: The scan covers this many last nights; earlier nights are merged with the evaluation.
WINDOW = 30
PERMUTATIONS, CHUNK = 20_000, 500
#: Tokens per adapter that a night samples if nothing changed.
CANARY_TOKENS = 200_000
_normal = NormalDist()


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one night.

    tonight: share of correct rollouts. expected: the share expected from earlier nights. low, high: range of 95 % of
    nights without a change. z: the largest statistic of the scan, negative for a loss. since: index of the night of
    that change; change: change of accuracy from the nights before it to the later ones. p: p-value of the scan; 1 if
    clearly above the level.
    """

    tonight: float
    expected: float
    low: float
    high: float
    z: float
    since: int
    change: float
    p: float
    level: float

    @property
    def alarm(self) -> bool:
        return self.p <= self.level


def look(correct_NP: np.ndarray, rollouts_NP: np.ndarray, level: float, seed: int, changed: int = 1) -> Look:
    """Return the result of the last night. Arguments are counts of two nights or more; a night may leave problems out.

    level: significance level of this night. changed: index of the first possible night of change, if known from the
    sampler.

    >>> found = look(np.array([[4, 4, 4, 2], [0, 0, 1, 0]]), np.full((2, 4), 4), level=0.04, seed=0)
    >>> found.tonight, found.expected, found.since, found.change, found.alarm
    (0.0625, 0.875, 1, -0.8125, True)
    """
    folded = max(changed - 1, len(correct_NP) - 1 - WINDOW)
    correct_NP, rollouts_NP = (
        np.vstack([x[: folded + 1].sum(axis=0), x[folded + 1 :]]) for x in (correct_NP, rollouts_NP)
    )
    late_N, mean_N, sd_N = _since(correct_NP, rollouts_NP)
    z_N = _standardised(late_N, mean_N, sd_N)
    worst = int(np.abs(z_N).argmax())
    change, _ = _difference(correct_NP, rollouts_NP, worst + 1)
    last, sd = _difference(correct_NP, rollouts_NP, len(correct_NP) - 1)
    tonight, half = float(correct_NP[-1].sum() / max(1, rollouts_NP[-1].sum())), _normal.inv_cdf(0.975) * sd
    return Look(
        tonight=tonight,
        expected=tonight - last,
        low=max(0.0, tonight - last - half),
        high=min(1.0, tonight - last + half),
        z=float(z_N[worst]),
        since=folded + worst + 1,
        change=change,
        p=_p_value(correct_NP, rollouts_NP, abs(float(z_N[worst])), level, seed),
        level=level,
    )


def level_of(whole_N: Sequence[bool]) -> float:
    """Return the level of a quarter's last night. whole_N: whether each night sampled as much as the evaluation.

    >>> level_of([False, True]), round(level_of([True, True]), 6), round(level_of([False]), 6)
    (0.04, 0.000111, 0.000111)
    """
    return FIRST if whole_N[-1] and not any(whole_N[:-1]) else OTHERS / QUARTER


def _since(correct_NP: np.ndarray, rollouts_NP: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return correct rollouts since each night but the first, over all problems; mean and SD if nothing changed."""
    all_P, share_P = rollouts_NP.sum(axis=0), _shares(correct_NP, rollouts_NP)
    late_NP = rollouts_NP[:0:-1].cumsum(axis=0)[::-1]
    variance_NP = late_NP * share_P * (1 - share_P) * (all_P - late_NP) / np.maximum(all_P - 1, 1)
    seen_N = correct_NP[:0:-1].sum(axis=1).cumsum()[::-1]
    return seen_N, late_NP @ share_P, np.sqrt(variance_NP.sum(axis=1))


def _shares(correct_NP: np.ndarray, rollouts_NP: np.ndarray) -> np.ndarray:
    return correct_NP.sum(axis=0) / np.maximum(rollouts_NP.sum(axis=0), 1)


def _standardised(late: np.ndarray, mean_N: np.ndarray, sd_N: np.ndarray) -> np.ndarray:
    return np.divide(late - mean_N, sd_N, out=np.zeros_like(late, dtype=np.float64), where=sd_N > 1e-9)


def _difference(correct_NP: np.ndarray, rollouts_NP: np.ndarray, since: int) -> tuple[float, float]:
    """Return (accuracy since this night minus before, its SD if nothing changed), weighted by the later rollouts."""
    before_P, after_P = rollouts_NP[:since].sum(axis=0), rollouts_NP[since:].sum(axis=0)
    both_P, all_P = (before_P > 0) & (after_P > 0), before_P + after_P
    share_P, sampled = _shares(correct_NP, rollouts_NP), max(1, int(after_P[both_P].sum()))
    earlier_P = _shares(correct_NP[:since], rollouts_NP[:since])
    variance_P = after_P * share_P * (1 - share_P) * all_P**2 / np.maximum((all_P - 1) * before_P, 1)
    gained = (correct_NP[since:].sum(axis=0) - after_P * earlier_P)[both_P].sum()
    return float(gained / sampled), float(np.sqrt(variance_P[both_P].sum()) / sampled)


def _p_value(correct_NP: np.ndarray, rollouts_NP: np.ndarray, observed: float, level: float, seed: int) -> float:
    """Return the scan's p by permutations of rollouts within problems, stopping once it is surely above the level."""
    if 2 * _normal.cdf(-observed) > 3 * level:  # the p-value of one statistic alone is above the level
        return 1.0
    share_P = _shares(correct_NP, rollouts_NP)
    varies_P = (share_P > 0) & (share_P < 1)  # permutations do not change the others
    correct_NP, rollouts_NP = correct_NP[:, varies_P], rollouts_NP[:, varies_P]
    _, mean_N, sd_N = _since(correct_NP, rollouts_NP)
    rng, done, beyond = np.random.default_rng(seed), 0, 0
    while done < PERMUTATIONS and beyond + 1 <= level * (PERMUTATIONS + 1):
        right_CP = np.repeat(correct_NP.sum(axis=0)[None], CHUNK, axis=0)
        left_P, late_C, worst_C = rollouts_NP.sum(axis=0), np.zeros(CHUNK), np.zeros(CHUNK)
        for night in range(len(rollouts_NP) - 1, 0, -1):
            taken_CP = rng.hypergeometric(right_CP, left_P - right_CP, rollouts_NP[night])
            right_CP, left_P = right_CP - taken_CP, left_P - rollouts_NP[night]
            late_C += taken_CP.sum(axis=1)
            z_C = _standardised(late_C, mean_N[night - 1], sd_N[night - 1])
            worst_C = np.maximum(worst_C, np.abs(z_C))
        beyond += int((worst_C >= observed - 1e-9).sum())
        done += CHUNK
    return (beyond + 1) / (done + 1)

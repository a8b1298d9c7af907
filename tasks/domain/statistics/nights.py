"""Drift over nights: whether the accuracy of a policy has changed since its evaluation, on the same problems.

Without a change, all rollouts of one problem are exchangeable. The number of correct rollouts since some night is then
hypergeometric, given the problem's counts over all nights. The sum over problems of its difference from the mean,
standardised, is the Mantel-Haenszel statistic. A scan takes the largest statistic over all possible nights of change.
The p-value comes from permutations of rollouts within problems; it is exact for any number of problems and rollouts.
The significance levels of 90 nights together allow a false alarm with a chance of at most 5 % (simulation:
docs/coverage.md). Axes: N nights, of which the first is the evaluation; P problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

#: Level of the first night that samples as much as the evaluation did, for example after an upgrade.
FIRST = 0.04
#: Sum of the levels of all other nights of a quarter, and the number of nights in it.
OTHERS, QUARTER = 0.01, 90
#: Number of latest nights that the scan covers. Earlier nights are merged with the evaluation.
WINDOW = 30
PERMUTATIONS, CHUNK = 20_000, 500
#: Tokens that a night samples for each adapter if nothing has changed.
CANARY_TOKENS = 200_000
_normal = NormalDist()


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one night.

    tonight: share of correct rollouts. expected: the share expected from earlier nights. low, high: range of 95 % of
    nights without a change. z: the largest statistic of the scan, negative for a loss. since: index of the likeliest
    night of change. change: accuracy from that night on, minus the accuracy before. p: p-value of the scan, or 1 if it
    is clearly above the level.
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
    """Return the result of the last night. The counts are those of at least two nights; a night may lack problems.

    level: significance level of this night. changed: first night that may have changed, if known.

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
    """Return the correct rollouts since each night but the first, with mean and SD of their number without a change."""
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
    """Return (accuracy since this night minus accuracy before, its SD without a change), weighted by later rollouts."""
    before_P, after_P = rollouts_NP[:since].sum(axis=0), rollouts_NP[since:].sum(axis=0)
    both_P, all_P = (before_P > 0) & (after_P > 0), before_P + after_P
    share_P, sampled = _shares(correct_NP, rollouts_NP), max(1, int(after_P[both_P].sum()))
    earlier_P = _shares(correct_NP[:since], rollouts_NP[:since])
    variance_P = after_P * share_P * (1 - share_P) * all_P**2 / np.maximum((all_P - 1) * before_P, 1)
    gained = (correct_NP[since:].sum(axis=0) - after_P * earlier_P)[both_P].sum()
    return float(gained / sampled), float(np.sqrt(variance_P[both_P].sum()) / sampled)


def _p_value(correct_NP: np.ndarray, rollouts_NP: np.ndarray, observed: float, level: float, seed: int) -> float:
    """Return the p-value of the scan by permutations within problems. Stop once it is surely above the level."""
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

"""How surely a mean is known that varies with problems and with seeds, each with degrees of freedom of its own.

Half an interval is √(t²(seeds) · variance of seeds + t²(problems) · variance of problems). Satterthwaite's one quantile
for the sum is short where few seeds agree by chance: their small variance then counts as well known (docs/coverage.md).

A seed shifts the logits of a share (`Shifts`): near 0 and 1 its share is skewed, a seed in the tail is rare and moves
the mean, so that the end away from the edge lies further off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

FARTHEST = -200.0  # decimal exponent of the smallest chance that is told from 0
ENDLESS = 1e150  # its square is a number
FEW_SEEDS = 5  # of which none lies off an edge: another may
NODES = 16  # of Gauss and Legendre's quadrature over what either variance is found to be


@dataclass(frozen=True, slots=True)
class Shifts:
    """A trained policy's mean share_V, what its seeds add to the variance_V of it, and the sign it is counted with."""

    sign: float
    share_V: np.ndarray
    variance_V: np.ndarray
    seeds: int

    def half(self, t_V: np.ndarray, up: bool | np.ndarray) -> np.ndarray:
        """How far_V the signed mean may lie off above (`up`) or below, by seeds: t_V standard errors of its logit.

        To the error on the logits is added twice that of Cox's correction, τ⁴(1 − 2p)²/(S − 1): a mean of what is
        skewed hangs on the seeds' variance τ², which few seeds know badly, and all the worse where none lies in the
        tail: then
        both are small. The logarithm of such a mean lies below that of what is expected by half its variance; for the
        same reason the whole of it is added towards the middle.

        >>> one = Shifts(1.0, np.array([0.5, 0.98]), np.array([1e-4, 1e-4]), 5)
        >>> [one.half(np.array([2.0, 2.0]), up).round(3).tolist() for up in (False, True)]
        [[0.02, 0.096], [0.02, 0.016]]
        """
        from scipy.special import expit

        p_V = np.clip(self.share_V, 1e-9, 1 - 1e-9)
        logit_V = np.log(p_V) - np.log1p(-p_V)
        error_V = self.variance_V / (p_V * (1 - p_V)) ** 2
        wider_V = error_V + (1 - 2 * p_V) ** 2 * (self.seeds * error_V) ** 2 / (self.seeds - 1)
        upwards_V = np.where(up, self.sign, -self.sign)
        inwards_V = np.maximum((1 - 2 * p_V) * upwards_V, 0.0) * error_V
        moved_V = expit(logit_V + upwards_V * (np.abs(t_V) * np.sqrt(wider_V) + inwards_V))
        return np.abs(moved_V - p_V) * (self.variance_V > 0)

    @property
    def silent_V(self) -> np.ndarray:
        """Whether few seeds all lie at an edge: by how much others would not is not to be seen (docs/coverage.md)."""
        return (np.minimum(self.share_V, 1 - self.share_V) < 1e-12) & (self.seeds <= FEW_SEEDS)


@dataclass(frozen=True, slots=True)
class Paired:
    """The difference of policies that are the same adapters: what a seed does to all of them falls out, so that a shift
    of its logits is nothing to go by. silent_V: as of each by itself."""

    variance_V: np.ndarray
    silent_V: np.ndarray

    def half(self, t_V: np.ndarray, up: bool | np.ndarray) -> np.ndarray:
        """How far_V it may lie off by seeds, either way."""
        return np.abs(t_V) * np.sqrt(self.variance_V)


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance_V of a mean over problems and what seeds add to it, each with its degrees of freedom. shifts: of the
    trained policies, where their values are shares."""

    problems_V: np.ndarray
    problems_df_V: np.ndarray
    seeds_V: np.ndarray
    seeds_df_V: np.ndarray
    shifts: Sequence[Shifts | Paired] = field(default=(), kw_only=True)

    @property
    def variance_V(self) -> np.ndarray:
        return self.problems_V + self.seeds_V

    @property
    def silent_V(self) -> np.ndarray:
        return np.logical_or.reduce([np.zeros(len(self.problems_V), bool), *(one.silent_V for one in self.shifts)])

    def half(self, tail: float | np.ndarray, up: bool | np.ndarray | None = None) -> np.ndarray:
        """Half-width_V of the interval that leaves so much out on either side; up: above, or below, the mean, which
        differ by `shifts`. Null: as if seeds were not skewed."""
        from scipy.special import stdtrit  # scipy.stats takes a millisecond a call

        t_V = np.maximum(stdtrit(self.seeds_df_V, tail), -ENDLESS)
        return np.sqrt(stdtrit(self.problems_df_V, tail) ** 2 * self.problems_V + self._of_seeds(t_V, up))

    def beyond(self, distance_V: np.ndarray, up: bool | np.ndarray | None = None) -> np.ndarray:
        """The chance_V of an estimate further than this on one side: what the interval of this half-width leaves out.

        >>> one = Spread(np.array([4.0]), np.array([9.0]), np.array([1.0]), np.array([2.0]))
        >>> one.beyond(one.half(0.03)).round(6).tolist(), one.beyond(-one.half(0.03)).round(6).tolist()
        ([0.03], [0.97])
        """
        from scipy.special import stdtr

        error_V = np.sqrt(np.where(self.problems_V > 0, self.problems_V, 1.0))
        alone_V = np.asarray(stdtr(self.problems_df_V, -distance_V / error_V))
        if not self.seeds_V.any():
            return alone_V
        low_V, high_V = np.full(len(distance_V), FARTHEST), np.full(len(distance_V), np.log10(0.5))
        for _ in range(40):
            middle_V = (low_V + high_V) / 2
            further_V = self.half(10**middle_V, up) > np.abs(distance_V)
            low_V, high_V = np.where(further_V, middle_V, low_V), np.where(further_V, high_V, middle_V)
        tail_V = 10**high_V
        return np.where(self.seeds_V > 0, np.where(distance_V < 0, 1 - tail_V, tail_V), alone_V)

    def found(self, tail: float, power: float, up: bool | np.ndarray) -> np.ndarray:
        """The mean_V that is found with this power by the test which leaves `tail` out on either side: noncentral t
        with two variances, each found again with its own degrees of freedom (Gauss-Legendre over both of them).

        >>> known = Spread(np.array([1.0, 1.0]), np.array([1e9, 4.0]), np.zeros(2), np.ones(2))
        >>> known.found(0.025, 0.8, False).round(3).tolist()  # 1.96 + 0.8416; noncentral t of 4 degrees
        [2.802, 3.761]
        """
        from scipy.special import gammaincinv, ndtr, stdtrit

        node_A, weight_A = np.polynomial.legendre.leggauss(NODES)
        node_A, weight_A = (node_A + 1) / 2, weight_A / 2

        def again(df_V: np.ndarray) -> np.ndarray:  # (A, V) variances that are found, over the true one
            return 2 * gammaincinv(df_V / 2, node_A[:, None]) / df_V

        problems_AV = stdtrit(self.problems_df_V, tail) ** 2 * self.problems_V * again(self.problems_df_V)
        squared_ABV, weight_AB = problems_AV[:, None], weight_A[:, None]
        if self.seeds_V.any():
            t_V = np.maximum(stdtrit(self.seeds_df_V, tail), -ENDLESS)
            squared_BV = [self._of_seeds(t_V, up, factor_V) for factor_V in again(self.seeds_df_V)]
            squared_ABV, weight_AB = squared_ABV + np.array(squared_BV), weight_A[:, None] * weight_A
        half_ABV, error_V = np.sqrt(squared_ABV), np.sqrt(self.variance_V)
        low_V, high_V = np.zeros_like(error_V), half_ABV.max(axis=(0, 1)) + 6 * error_V
        for _ in range(40):
            middle_V = (low_V + high_V) / 2
            chance_ABV = ndtr((middle_V - half_ABV) / error_V) + ndtr((-middle_V - half_ABV) / error_V)
            enough_V = np.einsum("ab,abv->v", weight_AB, chance_ABV) >= power
            low_V, high_V = np.where(enough_V, low_V, middle_V), np.where(enough_V, middle_V, high_V)
        return high_V

    def _of_seeds(
        self, t_V: np.ndarray, up: bool | np.ndarray | None, factor_V: float | np.ndarray = 1.0
    ) -> np.ndarray:
        """The square of what seeds add to a half-width_V, were their variances `factor_V` times what they are."""
        if up is None or not self.shifts:
            return t_V**2 * self.seeds_V * factor_V
        scaled = [replace(one, variance_V=one.variance_V * factor_V) for one in self.shifts]
        return np.sum([one.half(t_V, up) ** 2 for one in scaled], axis=0)


def taken_off(seeds: int, policies: int) -> float:
    """How much of what problems and seeds share is taken off the variance of seeds: what keeps intervals within 92 and
    98 % both where seeds differ and where they do not (docs/coverage.md). All of it where several policies have seeds,
    which rarely agree by chance all together; less of one policy's.

    >>> [taken_off(seeds, 1) for seeds in (2, 3, 5)], taken_off(3, 2)
    ([0.25, 0.5, 0.75], 1.0)
    """
    return 1.0 if policies > 1 else max(0.25, (seeds - 2) / (seeds - 1))


def shifts_of(parts: Sequence[tuple[float, np.ndarray]]) -> list[Shifts]:
    """Of every policy with several seeds, what these add to the variance of its mean."""
    found, several = [], sum(len(values_SPV) > 1 for _, values_SPV in parts)
    for sign, values_SPV in parts:
        S, n = values_SPV.shape[:2]
        if S < 2:
            continue
        by_seed_SV = values_SPV.mean(axis=1)
        part_V = by_seed_SV.var(axis=0, ddof=1) / S
        if n > 1:
            rest_SPV = values_SPV - values_SPV.mean(axis=0) - by_seed_SV[:, None, :] + by_seed_SV.mean(axis=0)
            shared_V = (rest_SPV**2).sum(axis=(0, 1)) / ((S - 1) * (n - 1)) / (n * S)
            part_V = part_V - taken_off(S, several) * shared_V
        found.append(Shifts(sign, by_seed_SV.mean(axis=0), np.maximum(part_V, 0.0), S))
    return found

"""Means over problems and training seeds: intervals, p-values and detectable differences. `shares` is for shares.

Axes: S seeds (adapters of one recipe), P problems, V columns that are tested side by side (for example every k).

A policy's mean varies with the sampled problems and, if it was trained, with the seed: variance = s²_problems/n +
s²_seeds/S, less a part that both contain (`taken_off`). Each of the two has its own quantile of Student's t: half² =
t²(S − 1)·seeds + t²(n − 1)·problems. One quantile (Satterthwaite) would be too short if few seeds agree by chance. The
degrees of freedom over problems depend on the kurtosis of their values. Near-duplicates count once (`folded`). A seed
shifts the logits of a share (`Shifts`), so near 0 or 1 the end away from the edge is further off. Coverage in
simulations: docs/coverage.md.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from statistics import NormalDist
from typing import Self

import numpy as np

from storage.estimates import LEVEL, NOTHING, tail_freedom, unseen_variance


@dataclass(frozen=True, slots=True)
class Seeded:
    """Values by seed and problem. values_SPV: values of the problems problem_P that all adapters adapter_S have.
    trained: whether the seeds are trainings."""

    values_SPV: np.ndarray
    problem_P: np.ndarray
    trained: bool
    adapter_S: np.ndarray

    @property
    def cluster_P(self) -> np.ndarray:
        """Return the last column. By convention it holds the clusters of near-duplicates."""
        return self.values_SPV[:1, :, -1].reshape(-1)

    def clustered(self) -> np.ndarray:
        """Return the other columns, with near-duplicates folded into one problem."""
        return folded(self.values_SPV[:, :, :-1], self.cluster_P)

    def replaced(self, values_SPV: np.ndarray) -> Self:
        """Return the same problems and clusters with other columns."""
        return replace(self, values_SPV=np.concatenate([values_SPV, self.values_SPV[:, :, -1:]], axis=2))


def same_adapters(policies: Sequence[np.ndarray]) -> bool:
    """Return whether all policies with several training seeds use the same adapters, for example under two prompts.
    policies: for each policy the numbers of its adapters, by seed.

    >>> same_adapters([np.array([4, 7]), np.array([4, 7]), np.array([0])]), same_adapters([np.array([4, 7])])
    (True, False)
    """
    first, *others = [adapter_S for adapter_S in policies if len(adapter_S) > 1] or [np.zeros(0)]
    return bool(others) and all(np.array_equal(first, other) for other in others)


def by_seed(problem_N: np.ndarray, adapter_N: np.ndarray, values_NV: np.ndarray) -> Seeded:
    """Arrange rows by seed and problem, and average rows of one adapter and problem. Problems that some adapter lacks
    are left out. Adapter 0 means no adapter: several samplings of an untrained policy are one policy, not seeds.

    >>> one = by_seed(np.array([7, 7, 8, 7]), np.array([1, 2, 1, 2]), np.array([[1.0], [2.0], [5.0], [4.0]]))
    >>> one.values_SPV.tolist(), one.problem_P.tolist(), one.trained
    ([[[1.0]], [[3.0]]], [7], True)
    """
    problem_P, at_N = np.unique(problem_N, return_inverse=True)
    adapter_S, seed_N = np.unique(adapter_N, return_inverse=True)
    shape = (len(adapter_S), len(problem_P))
    cell_N, cells = seed_N * shape[1] + at_N, shape[0] * shape[1]
    times_C = np.bincount(cell_N, minlength=cells)
    sums_VC = [np.bincount(cell_N, weights=column, minlength=cells) for column in values_NV.T]
    means_CV = np.stack(sums_VC, axis=1) / np.maximum(times_C, 1)[:, None]
    kept_P = (times_C.reshape(shape) > 0).all(axis=0) if cells else np.zeros(0, bool)
    values_SPV = means_CV.reshape(*shape, values_NV.shape[1])[:, kept_P]
    return Seeded(values_SPV, problem_P[kept_P], bool((adapter_S != 0).any()), adapter_S)


FARTHEST_TAIL = -200.0  # decimal exponent of the smallest chance that is distinguished from 0
ENDLESS = 1e150  # the square of it is finite
FEW_SEEDS = 5  # if at most this many seeds all have 0 or all have 1, the spread of other seeds is unknown
NODES = 16  # of the Gauss-Legendre quadrature over the two estimated variances


@dataclass(frozen=True, slots=True)
class Shifts:
    """A trained policy: its mean share_V, the variance_V that its seeds add to the mean, its sign in a contrast."""

    sign: float
    share_V: np.ndarray
    variance_V: np.ndarray
    seeds: int

    def half(self, t_V: np.ndarray, up: bool | np.ndarray) -> np.ndarray:
        """Return the half-width_V above (`up`) or below the signed mean: t_V standard errors of the logit of the mean,
        plus twice the error of Cox's correction, τ⁴(1 − 2p)²/(S − 1), because few seeds give a poor estimate of τ².
        The logit of a mean is biased away from the middle, so towards the middle the whole variance is added.

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
        """Return whether a few seeds all have 0 or all have 1, so that their spread is unknown (docs/coverage.md)."""
        return (np.minimum(self.share_V, 1 - self.share_V) < 1e-12) & (self.seeds <= FEW_SEEDS)


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance_V of a mean over problems, and the part that seeds add, each with its degrees of freedom. shifts:
    of the trained policies' logits, if the values are shares."""

    problems_V: np.ndarray
    problems_df_V: np.ndarray
    seeds_V: np.ndarray
    seeds_df_V: np.ndarray
    _: KW_ONLY
    shifts: Sequence[Shifts] = ()

    @property
    def variance_V(self) -> np.ndarray:
        return self.problems_V + self.seeds_V

    def half(self, tail: float | np.ndarray, up: bool | np.ndarray | None = None) -> np.ndarray:
        """Return the half-width_V of the interval with this probability in each tail. up: above or below the mean,
        where `shifts` make them differ; None ignores the skew that seeds cause."""
        from scipy.special import stdtrit  # scipy.stats takes a millisecond a call

        t_V = np.maximum(stdtrit(self.seeds_df_V, tail), -ENDLESS)
        return np.sqrt(stdtrit(self.problems_df_V, tail) ** 2 * self.problems_V + self._of_seeds(t_V, up))

    def beyond(self, distance_V: np.ndarray, up: bool | np.ndarray | None = None) -> np.ndarray:
        """Return the one-sided chance_V that an estimate is further away than the distance (the inverse of `half`).

        >>> one = Spread(np.array([4.0]), np.array([9.0]), np.array([1.0]), np.array([2.0]))
        >>> one.beyond(one.half(0.03)).round(6).tolist(), one.beyond(-one.half(0.03)).round(6).tolist()
        ([0.03], [0.97])
        """
        from scipy.special import stdtr

        error_V = np.sqrt(np.where(self.problems_V > 0, self.problems_V, 1.0))
        alone_V = np.asarray(stdtr(self.problems_df_V, -distance_V / error_V))
        if not self.seeds_V.any():
            return alone_V
        low_V, high_V = np.full(len(distance_V), FARTHEST_TAIL), np.full(len(distance_V), np.log10(0.5))
        tail_V = 10 ** bisected(low_V, high_V, lambda log_V: self.half(10**log_V, up) <= np.abs(distance_V))
        return np.where(self.seeds_V > 0, np.where(distance_V < 0, 1 - tail_V, tail_V), alone_V)

    def found(self, tail: float, power: float, up: bool | np.ndarray) -> np.ndarray:
        """Return the mean_V that a test with this tail on each side detects with this power. The power is that of a
        noncentral t with two variances, each with its own degrees of freedom (Gauss-Legendre over both).

        >>> known = Spread(np.array([1.0, 1.0]), np.array([1e9, 4.0]), np.zeros(2), np.ones(2))
        >>> known.found(0.025, 0.8, False).round(3).tolist()  # 1.96 + 0.8416; noncentral t of 4 degrees
        [2.802, 3.761]
        """
        from scipy.special import gammaincinv, ndtr, stdtrit

        node_A, weight_A = np.polynomial.legendre.leggauss(NODES)
        node_A, weight_A = (node_A + 1) / 2, weight_A / 2

        def again(df_V: np.ndarray) -> np.ndarray:  # (A, V) possible estimates of a variance, divided by the true one
            return 2 * gammaincinv(df_V / 2, node_A[:, None]) / df_V

        problems_AV = stdtrit(self.problems_df_V, tail) ** 2 * self.problems_V * again(self.problems_df_V)
        squared_ABV, weight_AB = problems_AV[:, None], weight_A[:, None]
        if self.seeds_V.any():
            t_V = np.maximum(stdtrit(self.seeds_df_V, tail), -ENDLESS)
            squared_BV = [self._of_seeds(t_V, up, factor_V) for factor_V in again(self.seeds_df_V)]
            squared_ABV, weight_AB = squared_ABV + np.array(squared_BV), weight_A[:, None] * weight_A
        half_ABV, error_V = np.sqrt(squared_ABV), np.sqrt(self.variance_V)

        def enough(mean_V: np.ndarray) -> np.ndarray:
            chance_ABV = ndtr((mean_V - half_ABV) / error_V) + ndtr((-mean_V - half_ABV) / error_V)
            return np.einsum("ab,abv->v", weight_AB, chance_ABV) >= power

        return bisected(np.zeros_like(error_V), half_ABV.max(axis=(0, 1)) + 6 * error_V, enough)

    def _of_seeds(
        self, t_V: np.ndarray, up: bool | np.ndarray | None, factor_V: float | np.ndarray = 1.0
    ) -> np.ndarray:
        """Return the squared half-width_V that seeds cause, with their variances multiplied by `factor_V`."""
        if up is None or not self.shifts:
            return t_V**2 * self.seeds_V * factor_V
        scaled = [replace(one, variance_V=one.variance_V * factor_V) for one in self.shifts]
        return np.sum([one.half(t_V, up) ** 2 for one in scaled], axis=0)


def bisected(low_V: np.ndarray, high_V: np.ndarray, reached: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the smallest value_V between the ends at which `reached` holds. `reached` must be monotone.

    >>> bisected(np.zeros(2), np.ones(2), lambda x: x >= np.array([0.25, 0.7])).round(6).tolist()
    [0.25, 0.7]
    """
    for _ in range(40):
        middle_V = (low_V + high_V) / 2
        reached_V = reached(middle_V)
        low_V, high_V = np.where(reached_V, low_V, middle_V), np.where(reached_V, middle_V, high_V)
    return high_V


def taken_off(seeds: int, policies: int) -> float:
    """Return the share of the variance common to problems and seeds that is subtracted from the seeds' variance. The
    share was chosen to keep coverage between 92 and 98 % (docs/coverage.md). With several seeded policies it is all of
    the common variance, because they rarely all agree by chance.

    >>> [taken_off(seeds, 1) for seeds in (2, 3, 5)], taken_off(3, 2)
    ([0.25, 0.5, 0.75], 1.0)
    """
    return 1.0 if policies > 1 else max(0.25, (seeds - 2) / (seeds - 1))


def shifts_of(parts: Sequence[tuple[float, np.ndarray]]) -> list[Shifts]:
    """Return the `Shifts` of each policy with several seeds."""
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


_normal = NormalDist()
POWER = 0.8
#: Margin of equivalence: gains within two percentage points are equivalent. It was chosen before any result.
MARGIN = 0.02
#: Standard deviation of the differences for which a confidence sequence is narrowest. It was fixed before any result.
EXPECTED = 0.1
#: Smallest tail probability that is computed from Student's t.
LEAST_TAIL = 1e-300
#: Student's t fails if the effective number of clusters is below ENOUGH and their number is UNEVEN times as large.
ENOUGH, UNEVEN = 12.0, 1.5
FARTHEST = 700.0  # the logarithm of the largest number
ONE_PROBLEM = "one problem, or few near-duplicates that most of the others are: no spread, no interval"
SILENT = "seeds so few, none with a failure, or none with a success, say nothing of other seeds: no interval"
ADAPTERS = "these adapters, not the recipe"


@dataclass(frozen=True, slots=True)
class Means:
    """Estimates estimate_V and their spread over n problems, where near-duplicates count once.

    silent_V: `Shifts.silent_V` of a policy. known_V: whether intervals exist: not if silent_V, and not if all values
    are equal and no `reach` bounds their variance. varies_V: whether values differ. seeds: fewest seeds of a trained
    policy, 0 if none is trained. reach: see `combined`. lessons: whether all seeds started from one lesson's adapter.
    """

    estimate_V: np.ndarray
    spread: Spread
    known_V: np.ndarray
    varies_V: np.ndarray
    silent_V: np.ndarray
    n: int
    seeds: int
    reach: float = np.inf
    lessons: bool = False

    @property
    def holds_for(self) -> str | None:
        return holds_for(self.seeds, self.lessons)

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Return (low_V, high_V), limited to the reach; NaN where unknown."""
        return self._ends((1 - level) / 2)

    def sequence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (low_V, high_V) of a confidence sequence, valid at all looks while problems or seeds are added."""
        from scipy.special import ndtr

        variance_V = np.where(self.known_V, self.spread.variance_V, 1.0)
        return self._ends(np.maximum(ndtr(-errors_at_any_look(variance_V)), LEAST_TAIL))

    def _ends(self, tail: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        down_V, up_V = (np.where(self.known_V, self.spread.half(tail, up), np.nan) for up in (False, True))
        return np.maximum(self.estimate_V - down_V, -self.reach), np.minimum(self.estimate_V + up_V, self.reach)

    def unknown(self, i: int, alike: str) -> str:
        """Return why a column has no interval or test; `alike` if all problems have the same value."""
        return ONE_PROBLEM if self.n < 2 else SILENT if self.silent_V[i] else alike

    def p_value(self) -> np.ndarray:
        """Return the two-sided p_V for a mean of 0; NaN if all problems have the same value."""
        at_V = self.estimate_V
        return self._where(self.varies_V, lambda spread: 2 * spread.beyond(np.abs(at_V), at_V < 0))

    def p_equivalent(self, margin: float) -> np.ndarray:
        """Return the p_V of the equivalence test (TOST) with ±margin. A small p means equivalent."""
        above_V, below_V = margin - self.estimate_V, margin + self.estimate_V
        return self._where(
            self.known_V,
            lambda spread: np.maximum(spread.beyond(above_V, above_V > 0), spread.beyond(below_V, below_V < 0)),
        )

    def detectable(self) -> np.ndarray:
        """Return the smallest mean_V of the same sign that `p_value` detects in a share POWER of studies with this
        spread; NaN if it would be beyond the reach."""
        found_V = self._where(self.known_V, lambda spread: spread.found((1 - LEVEL) / 2, POWER, self.estimate_V < 0))
        return np.where(found_V <= self.reach, found_V, np.nan)

    def _where(self, wanted_V: np.ndarray, found: Callable[[Spread], np.ndarray]) -> np.ndarray:
        seen_V = self.known_V & wanted_V
        safe = replace(self.spread, problems_V=np.where(seen_V, self.spread.problems_V, 1.0))
        return np.where(seen_V, found(safe), np.nan)


def errors_at_any_look(variance_V: np.ndarray) -> np.ndarray:
    """Return a number of standard errors. In 95 % of studies, the estimates of all looks stay within this distance of
    the true value. A mean divided by its variance has independent increments while problems or seeds are added, and
    Robbins' mixture over a normal of standard deviation EXPECTED bounds it (Howard et al. 2021, arXiv 1810.08240, eq.
    14).

    >>> errors_at_any_look(np.array([0.05, 0.02, 0.005]) ** 2).round(2).tolist()
    [3.08, 3.1, 3.47]
    """
    gained_V = EXPECTED**2 / variance_V
    return np.sqrt((1 + 1 / gained_V) * (np.log1p(gained_V) - 2 * np.log(1 - LEVEL)))


def combined(
    parts: Sequence[tuple[float, np.ndarray]],
    trained: Sequence[bool],
    reach: float = np.inf,
    *,
    shares: bool = False,
    paired: bool = False,
) -> Means:
    """Return the mean over problems of Σ sign · policy, each policy averaged over its seeds.

    parts: (sign, values_SPV) on the same problems in the same order. trained: whether each policy was trained, with
    seeds of its own. reach: largest absolute value of one problem (1 for a difference of two shares). If few problems
    or none differ, `reach` bounds the variance of others (`unseen_variance`); without a reach there is then no
    interval. shares: values are shares in [0, 1], whose seeds differ by shifts of logits. paired: policies with several
    seeds use the same adapters. The effects of a seed on both then cancel, and shifts of logits do not apply.

    >>> m = combined([(1.0, np.array([[[0.0], [1.0], [2.0]]]))], [False])
    >>> m.estimate_V.tolist(), m.n, m.holds_for, [round(float(end[0]), 3) for end in m.interval()]
    ([1.0], 3, None, [-1.484, 3.484])
    """
    mean_PV = np.sum([sign * values.mean(axis=0) for sign, values in parts], axis=0)
    n = len(mean_PV)
    estimate_V = mean_PV.mean(axis=0)
    problems_V = mean_PV.var(axis=0, ddof=1) / n if n > 1 else np.zeros_like(estimate_V)
    seeded = [(1.0, np.sum([sign * values for sign, values in parts if len(values) > 1], axis=0))] if paired else parts
    seeds_V, seeds_df_V = added_by_seeds(seeded, estimate_V.shape)
    varies_V = problems_V + seeds_V > NOTHING
    df_V = np.where(problems_V > NOTHING, tail_freedom(mean_PV, within=np.isfinite(reach)), max(n - 1.0, 1.0))
    if np.isfinite(reach):
        problems_V = problems_V + unseen_variance(mean_PV, reach)
    shifts = shifts_of(parts) if shares else []
    silent_V = np.any([np.zeros(len(estimate_V), bool), *(policy.silent_V for policy in shifts)], axis=0)
    spread = Spread(problems_V, df_V, seeds_V, seeds_df_V, shifts=[] if paired else shifts)
    known_V = (n > 1) & (problems_V + seeds_V > NOTHING) & ~silent_V
    seeds = min((len(values) for (_, values), was in zip(parts, trained, strict=True) if was), default=0)
    return Means(estimate_V, spread, known_V, varies_V, silent_V, n, seeds, reach)


def folded(values_SPV: np.ndarray, cluster_P: np.ndarray) -> np.ndarray:
    """Return (S, C, V) values of C clusters of near-duplicates in place of problems, with the same means by seed. The
    variance of these values is the cluster-robust one, C/(C − 1) · Σ_c (Σ_{i∈c} (x_i − mean))² / n². The variance is
    unreliable if a few large clusters hold most problems (`uneven`). All problems then become one cluster, which has no
    interval.

    >>> folded(np.array([[[0.0], [0.0], [3.0]]]), np.array([7, 7, 8])).round(3).tolist()
    [[[-0.333], [2.333]]]
    """
    found, at_P = np.unique(cluster_P, return_inverse=True)
    if len(found) == len(cluster_P):
        return values_SPV
    mean_S1V = values_SPV.mean(axis=1, keepdims=True)
    if uneven(at_P):
        return mean_S1V
    together_P = np.argsort(at_P, kind="stable")
    first_C = np.searchsorted(at_P[together_P], np.arange(len(found)))
    summed_SCV = np.add.reduceat((values_SPV - mean_S1V)[:, together_P], first_C, axis=1)
    return mean_S1V + len(found) / len(cluster_P) * summed_SCV


def uneven(at_P: np.ndarray) -> bool:
    """Return whether the effective number of clusters, n²/Σ n_c², is small and far below their number.

    >>> uneven(np.minimum(np.arange(100), 50)), uneven(np.arange(100) // 20), uneven(np.array([0, 0, 1, 2]))
    (True, False, False)
    """
    return len(at_P) / repeated(at_P) < min(ENOUGH, len(np.unique(at_P)) / UNEVEN)


def repeated(cluster_P: np.ndarray) -> float:
    """Return the mean number of near-duplicates per problem, Σ n_c²/n: the design effect of fully correlated clusters.

    >>> repeated(np.array([0, 0, 1, 2])), repeated(np.arange(9))
    (1.5, 1.0)
    """
    size_C = np.unique(cluster_P, return_counts=True)[1].astype(np.float64)
    return float((size_C**2).sum() / len(cluster_P))


def on_common_problems(policies: Sequence[Seeded]) -> list[Seeded]:
    """Return the policies restricted to the problems that all of them have, in one order."""
    problem_P = reduce(np.intersect1d, [one.problem_P for one in policies])
    places = [np.searchsorted(one.problem_P, problem_P) for one in policies]
    pairs = zip(policies, places, strict=True)
    return [replace(one, values_SPV=one.values_SPV[:, at], problem_P=problem_P) for one, at in pairs]


def contrast(
    signs: Sequence[float],
    policies: Sequence[Seeded],
    reach: float = np.inf,
    *,
    shares: bool = True,
    starts: Collection[int] = (),
) -> Means:
    """Return Σ sign · policy of each column but the last (the cluster). Policies must have the same problems; they are
    paired by problem, and by seed if they use the same adapters. reach, shares: see `combined`. starts: places of
    policies that others were trained from. The single adapter of such a policy is a lesson's, and not a seed."""
    cluster_P = policies[0].cluster_P
    parts = [(sign, folded(one.values_SPV[:, :, :-1], cluster_P)) for sign, one in zip(signs, policies, strict=True)]
    paired = same_adapters([one.adapter_S for one in policies])
    lessons = {at for at in starts if policies[at].trained and len(policies[at].adapter_S) == 1}
    trained = [one.trained and at not in lessons for at, one in enumerate(policies)]
    return replace(combined(parts, trained, reach, shares=shares, paired=paired), lessons=bool(lessons))


def ratio(
    top_SP: np.ndarray, bottom_SP: np.ndarray, trained: bool | tuple[bool, bool], *, paired: bool = False
) -> tuple[float, float, float]:
    """Return (ratio, low, high) of two positive sums over problems, linearised on the log scale. The ends are NaN for
    one problem, if nothing varies, or if they overflow. trained: for one policy a bool, for two policies a pair. Two
    policies have separate seeds, or with `paired` the same.

    >>> two = np.array([[2.0, 4.0, 5.0]]), np.array([[1.0, 2.0, 2.0]])
    >>> [[round(v, 3) for v in ratio(*two, trained)] for trained in (False, (False, False))]
    [[2.2, 1.537, 3.149], [2.2, 1.537, 3.149]]
    """
    top, bottom = float(top_SP.mean()), float(bottom_SP.mean())
    at, first, second = top / bottom, top_SP[:, :, None] / top, bottom_SP[:, :, None] / bottom
    if isinstance(trained, tuple):
        found = combined([(1.0, first), (-1.0, second)], trained, paired=paired)
    else:
        found = combined([(1.0, first - second)], [trained])
    low, high = (float(end_V[0]) for end_V in found.interval())
    if not max(abs(low), abs(high)) < FARTHEST:
        return at, np.nan, np.nan
    return at, float(at * np.exp(low)), float(at * np.exp(high))


def together(values_PV: np.ndarray, draws: int, seed: int) -> float:
    """Return the factor on the normal quantile that makes intervals of correlated columns hold simultaneously. The
    factor comes from the largest of V normals with the columns' correlation. Constant columns are independent."""
    if values_PV.shape[1] < 2 or len(values_PV) < 2:
        return 1.0
    away_PV = values_PV - values_PV.mean(axis=0)
    scale_V = np.sqrt((away_PV**2).sum(axis=0))
    away_PV = away_PV / np.where(scale_V > 0, scale_V, 1.0)
    correlation_VV = away_PV.T @ away_PV
    np.fill_diagonal(correlation_VV, 1.0)
    weight_V, axes_VV = np.linalg.eigh(correlation_VV)
    normal_BV = np.random.default_rng(seed).normal(size=(draws, len(weight_V)))
    drawn_BV = (normal_BV * np.sqrt(np.maximum(weight_V, 0.0))) @ axes_VV.T
    worst = float(np.quantile(np.abs(drawn_BV).max(axis=1), LEVEL))
    return max(1.0, worst / _normal.inv_cdf((1 + LEVEL) / 2))


def holds_for(seeds: int, lessons: bool = False) -> str | None:
    """Return the population that an interval holds for, by the number of trained seeds; None for an untrained policy.
    lessons: whether all seeds started from one lesson's adapter."""
    recipe = "the recipe after these lessons" if lessons else "the recipe"
    return None if seeds == 0 else ADAPTERS if seeds == 1 else f"{recipe}, by {seeds} seeds"


def added_by_seeds(parts: Sequence[tuple[float, np.ndarray]], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (the variance_V that seeds add, its degrees of freedom by Satterthwaite)."""
    added_V, over_V = np.zeros(shape), np.zeros(shape)
    for policy in shifts_of(parts):
        part_V = policy.sign**2 * policy.variance_V
        added_V, over_V = added_V + part_V, over_V + part_V**2 / (policy.seeds - 1)
    return added_V, np.where(over_V > 0, added_V**2 / np.where(over_V > 0, over_V, 1.0), 1.0)

"""Means over problems and training seeds: intervals, p-values and detectable differences; those of shares in `shares`.

Axes: S seeds (adapters of one recipe), P problems, V columns that are judged side by side (for example every k).

A policy's mean varies with the problems that were asked and, when it was trained, with the seed. Both are random:
variance = s²_problems/n + s²_seeds/S, less what the two share (`taken_off`). Each part has its own quantile of
Student's t, half² = t²(S − 1)·seeds + t²(n − 1)·problems: Satterthwaite's one quantile for the sum is short where few
seeds agree by chance. The degrees of freedom over problems follow the kurtosis of their values. Near-duplicate problems
are one (`folded`). A seed shifts the logits of a share (`Shifts`): near 0 and 1 its share is skewed, so the end away
from the edge lies further off. Measured against the alternatives in docs/coverage.md (`python -m benchmarks.coverage`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from statistics import NormalDist

import numpy as np

from storage.rules import LEVEL, NOTHING, tail_freedom, unseen_variance


@dataclass(frozen=True, slots=True)
class Seeded:
    """values_SPV of the problems problem_P that each of adapter_S has; trained: whether these are trainings."""

    values_SPV: np.ndarray
    problem_P: np.ndarray
    trained: bool
    adapter_S: np.ndarray

    @property
    def cluster_P(self) -> np.ndarray:
        """The last column, where that is the cluster of near-duplicates."""
        return self.values_SPV[:1, :, -1].reshape(-1)

    def clustered(self) -> np.ndarray:
        """The other columns, with near-duplicates as one."""
        return folded(self.values_SPV[:, :, :-1], self.cluster_P)

    def replaced(self, values_SPV: np.ndarray) -> Seeded:
        """The same problems with other columns and the cluster."""
        return replace(self, values_SPV=np.concatenate([values_SPV, self.values_SPV[:, :, -1:]], axis=2))


def same_adapters(policies: Sequence[np.ndarray]) -> bool:
    """Whether the policies with several seeds are the same adapters, for example under two prompts. policies: adapter_S
    of each.

    >>> same_adapters([np.array([4, 7]), np.array([4, 7]), np.array([0])]), same_adapters([np.array([4, 7])])
    (True, False)
    """
    first, *others = [adapter_S for adapter_S in policies if len(adapter_S) > 1] or [np.zeros(0)]
    return bool(others) and all(np.array_equal(first, other) for other in others)


def by_seed(problem_N: np.ndarray, adapter_N: np.ndarray, values_NV: np.ndarray) -> Seeded:
    """Rows of one adapter and problem are averaged. adapter 0 is none: several samplings of an untrained policy are one
    policy, not several seeds. Problems that some adapter lacks are left out.

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


FARTHEST_TAIL = -200.0  # decimal exponent of the smallest chance that is told from 0
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

        To the error on the logits is added twice that of Cox's correction, τ⁴(1 − 2p)²/(S − 1): a skewed mean hangs on
        the seeds' variance τ², which few seeds know badly. The logarithm of such a mean lies below that of its
        expectation by half its variance; for the same reason the whole of it is added towards the middle.

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
        return np.any([np.zeros(len(self.problems_V), bool), *(one.silent_V for one in self.shifts)], axis=0)

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
        low_V, high_V = np.full(len(distance_V), FARTHEST_TAIL), np.full(len(distance_V), np.log10(0.5))
        tail_V = 10 ** bisected(low_V, high_V, lambda log_V: self.half(10**log_V, up) <= np.abs(distance_V))
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

        def enough(mean_V: np.ndarray) -> np.ndarray:
            chance_ABV = ndtr((mean_V - half_ABV) / error_V) + ndtr((-mean_V - half_ABV) / error_V)
            return np.einsum("ab,abv->v", weight_AB, chance_ABV) >= power

        return bisected(np.zeros_like(error_V), half_ABV.max(axis=(0, 1)) + 6 * error_V, enough)

    def _of_seeds(
        self, t_V: np.ndarray, up: bool | np.ndarray | None, factor_V: float | np.ndarray = 1.0
    ) -> np.ndarray:
        """The square of what seeds add to a half-width_V, were their variances `factor_V` times what they are."""
        if up is None or not self.shifts:
            return t_V**2 * self.seeds_V * factor_V
        scaled = [replace(one, variance_V=one.variance_V * factor_V) for one in self.shifts]
        return np.sum([one.half(t_V, up) ** 2 for one in scaled], axis=0)


def bisected(low_V: np.ndarray, high_V: np.ndarray, reached: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the least_V between the ends at which `reached` holds, which it does from there on.

    >>> bisected(np.zeros(2), np.ones(2), lambda x: x >= np.array([0.25, 0.7])).round(6).tolist()
    [0.25, 0.7]
    """
    for _ in range(40):
        middle_V = (low_V + high_V) / 2
        reached_V = reached(middle_V)
        low_V, high_V = np.where(reached_V, low_V, middle_V), np.where(reached_V, middle_V, high_V)
    return high_V


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


_normal = NormalDist()
POWER = 0.8
#: Gains within two points of 0, and of each other, are called the same: declared before any is seen.
MARGIN = 0.02
#: Fewer clusters in effect than these, and so many times fewer than there are: Student's t fails.
ENOUGH, UNEVEN = 12.0, 1.5
FARTHEST = 700.0  # the logarithm of the largest number
ONE_PROBLEM = "one problem, or few near-duplicates that most of the others are: no spread, no interval"
SILENT = "seeds so few, none with a failure, or none with a success, say nothing of other seeds: no interval"
ADAPTERS = "these adapters, not the recipe"


@dataclass(frozen=True, slots=True)
class Means:
    """estimate_V and its spread over n problems, near-duplicates counted once. known_V: false where nothing varies and
    no reach bounds what could; varies_V: whether anything does. seeds: fewest seeds of a trained policy in it, 0 where
    none is trained."""

    estimate_V: np.ndarray
    spread: Spread
    known_V: np.ndarray
    varies_V: np.ndarray
    n: int
    seeds: int
    reach: float | None = None

    @property
    def holds_for(self) -> str | None:
        """What an interval generalises to beyond its problems; null for policies that were not trained."""
        return holds_for(self.seeds)

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """(low_V, high_V) within the reach, NaN where unknown."""
        down_V, up_V = (np.where(self.known_V, self.spread.half((1 - level) / 2, up), np.nan) for up in (False, True))
        return np.maximum(self.estimate_V - down_V, -self.furthest), np.minimum(self.estimate_V + up_V, self.furthest)

    @property
    def furthest(self) -> float:
        return np.inf if self.reach is None else self.reach

    def unknown(self, i: int, alike: str) -> str:
        """Why nothing is known of a column, or no test of it: `alike` where no problem differs from another."""
        return ONE_PROBLEM if self.n < 2 else SILENT if self.spread.silent_V[i] else alike

    def p_value(self) -> np.ndarray:
        """Two-sided p_V of a mean of 0; NaN where no problem differs from another."""
        at_V = self.estimate_V
        return self._where(self.varies_V, lambda spread: 2 * spread.beyond(np.abs(at_V), at_V < 0))

    def p_equivalent(self, margin: float) -> np.ndarray:
        """TOST: p_V that the mean lies outside ±margin; small means equivalent."""
        if margin <= 0:
            raise ValueError("a margin of equivalence is positive")
        above_V, below_V = margin - self.estimate_V, margin + self.estimate_V
        return self._where(
            self.known_V,
            lambda spread: np.maximum(spread.beyond(above_V, above_V > 0), spread.beyond(below_V, below_V < 0)),
        )

    def detectable(self) -> np.ndarray:
        """The smallest mean_V, on the side of this one, that `p_value` finds in POWER of studies of this spread; NaN
        where none within the reach is large enough."""
        found_V = self._where(self.known_V, lambda spread: spread.found((1 - LEVEL) / 2, POWER, self.estimate_V < 0))
        return np.where(found_V <= self.furthest, found_V, np.nan)

    def _where(self, wanted_V: np.ndarray, found: Callable[[Spread], np.ndarray]) -> np.ndarray:
        seen_V = self.known_V & wanted_V
        safe = replace(self.spread, problems_V=np.where(seen_V, self.spread.problems_V, 1.0))
        return np.where(seen_V, found(safe), np.nan)


def combined(
    parts: Sequence[tuple[float, np.ndarray]],
    trained: Sequence[bool],
    reach: float | None = None,
    *,
    shares: bool = False,
    paired: bool = False,
) -> Means:
    """The mean over problems of Σ sign · policy, each policy averaged over its seeds.

    parts: (sign, values_SPV) on the same problems in the same order; policies are trained with seeds of their own.
    reach: how far one problem's value can lie from 0 (1 for a difference of two shares): where no problem differs
    from another, or few do, it bounds what was not seen (`unseen_variance`). Without a reach a column in which none
    does is not known. shares: whether a policy's values are shares in [0, 1], whose seeds differ by shifts of logits.
    paired: whether the policies with several seeds are the same adapters, which are then seen as one.

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
    df_V = np.where(problems_V > NOTHING, tail_freedom(mean_PV, within=reach is not None), max(n - 1.0, 1.0))
    if reach is not None:
        problems_V = problems_V + unseen_variance(mean_PV, reach)
    shifts: Sequence[Shifts | Paired] = shifts_of(parts) if shares else ()
    if paired and shifts:
        shifts = [Paired(seeds_V, np.any([policy.silent_V for policy in shifts], axis=0))]
    spread = Spread(problems_V, df_V, seeds_V, seeds_df_V, shifts=shifts)
    known_V = np.full(len(estimate_V), n > 1) & (problems_V + seeds_V > NOTHING) & ~spread.silent_V
    return Means(estimate_V, spread, known_V, varies_V, n, seeds_of(parts, trained), reach)


def folded(values_SPV: np.ndarray, cluster_P: np.ndarray) -> np.ndarray:
    """(S, C, V) values of C clusters of near-duplicate problems in the place of problems: the same means by seed, and a
    variance over clusters that is the cluster-robust one, C/(C − 1) · Σ_c (Σ_{i∈c} (x_i − mean))² / n².

    Where few large clusters hold most of the problems beside many small ones (`uneven`), the variance hangs on those
    few: all are then one, of which no interval is known.

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
    """Whether the effective number of clusters, n²/Σ n_c², is below ENOUGH and far below their number.

    >>> uneven(np.minimum(np.arange(100), 50)), uneven(np.arange(100) // 20), uneven(np.array([0, 0, 1, 2]))
    (True, False, False)
    """
    return len(at_P) / repeated(at_P) < min(ENOUGH, len(np.unique(at_P)) / UNEVEN)


def repeated(cluster_P: np.ndarray) -> float:
    """How many near-duplicates count as one problem in effect, Σ n_c²/n: the design effect of what they share wholly.

    >>> repeated(np.array([0, 0, 1, 2])), repeated(np.arange(9))
    (1.5, 1.0)
    """
    size_C = np.unique(cluster_P, return_counts=True)[1].astype(np.float64)
    return float((size_C**2).sum() / len(cluster_P))


def on_common_problems(policies: Sequence[Seeded]) -> list[Seeded]:
    """The policies on the problems that all of them have, in one order."""
    problem_P = reduce(np.intersect1d, [one.problem_P for one in policies])
    places = [np.searchsorted(one.problem_P, problem_P) for one in policies]
    pairs = zip(policies, places, strict=True)
    return [replace(one, values_SPV=one.values_SPV[:, at], problem_P=problem_P) for one, at in pairs]


def contrast(
    signs: Sequence[float], policies: Sequence[Seeded], reach: float | None = None, *, shares: bool = True
) -> Means:
    """Σ sign · policy of each column but the last, which is the cluster, of policies on the same problems: paired by
    problem, and by seed where they are the same adapters. reach, shares: as `combined` has them."""
    cluster_P = policies[0].cluster_P
    parts = [(sign, folded(one.values_SPV[:, :, :-1], cluster_P)) for sign, one in zip(signs, policies, strict=True)]
    paired = same_adapters([one.adapter_S for one in policies])
    return combined(parts, [one.trained for one in policies], reach, shares=shares, paired=paired)


def ratio(
    top_SP: np.ndarray, bottom_SP: np.ndarray, trained: bool | tuple[bool, bool], *, paired: bool = False
) -> tuple[float, float, float]:
    """(ratio, low, high) of two sums over problems, on the logarithmic scale, so that it stays positive: linearised,
    with the variance and degrees of freedom of `combined`. Ends are NaN for one problem, where nothing varies, and
    where they lie too far off to be numbers.

    trained: of one policy, or of two policies on the same problems, which have seeds of their own or, `paired`, the
    same ones. Errors: ValueError if either sum is not positive.

    >>> two = np.array([[2.0, 4.0, 5.0]]), np.array([[1.0, 2.0, 2.0]])
    >>> [[round(v, 3) for v in ratio(*two, trained)] for trained in (False, (False, False))]
    [[2.2, 1.537, 3.149], [2.2, 1.537, 3.149]]
    """
    top, bottom = float(top_SP.mean()), float(bottom_SP.mean())
    if top <= 0 or bottom <= 0:
        raise ValueError("a ratio over nothing is undefined")
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
    """The factor on the normal quantile at which intervals of correlated columns hold for all of them together: the
    quantile of the largest of V normals with the columns' correlation. A column that does not vary is independent."""
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


def holds_for(seeds: int) -> str | None:
    """What an interval with so many seeds of a trained policy in it holds for; null without a trained one."""
    return None if seeds == 0 else ADAPTERS if seeds == 1 else f"the recipe, by {seeds} seeds"


def seeds_of(parts: Sequence[tuple[float, np.ndarray]], trained: Sequence[bool]) -> int:
    return min((len(values) for (_, values), was in zip(parts, trained, strict=True) if was), default=0)


def added_by_seeds(parts: Sequence[tuple[float, np.ndarray]], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(variance_V that seeds add to that of the problems, its degrees of freedom by Satterthwaite)."""
    added_V, over_V = np.zeros(shape), np.zeros(shape)
    for policy in shifts_of(parts):
        part_V = policy.sign**2 * policy.variance_V
        added_V, over_V = added_V + part_V, over_V + part_V**2 / (policy.seeds - 1)
    return added_V, np.where(over_V > 0, added_V**2 / np.where(over_V > 0, over_V, 1.0), 1.0)

"""What counts of correct rollouts say of a pool whatever the shape of its difficulty: the range of a figure over all
distributions of problems' chances whose likelihood is not told from the best one's.

A beta-binomial gives an estimate; its interval would hold for pools that are spread like a beta alone. Where two
problems in five are always solved, or half of them have one chance and half another, its own interval of the
mislabelled covers nothing (docs/coverage.md). What eight rollouts cannot tell of sixteen shows here as width.

Axes: C classes of equal (n, c), J chances of a correct rollout, I terms of a figure, F figures, V prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from storage.rules import Band, band, in_variance_band, variance_chance

Pairs = Sequence[tuple[int, int]]
CHANCE_J = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-6.5, 6.5, 41))), [1.0]])
FEWEST = 5  # problems of a band: of one or two nothing is known but that they were there
#: Log likelihood below the best that does not tell a distribution from it: for a figure of any problem, and for bounds
#: of figures of problems with certain counts. One parameter wants 1.92; with that the former were covered in 92 to
#: 97 %, and the latter in 86 to 100, by how much of them is told by any number of problems (docs/coverage.md).
UNTOLD, UNTOLD_GIVEN = 2.2, 3.0
#: What a unit of a figure is worth in log likelihood, between which the end of an interval is found, and how often the
#: distribution is bettered at each.
PRICE_V, STEPS = np.concatenate([[0.0], np.geomspace(1.0, 2000.0, 14)]), 300


@dataclass(frozen=True, slots=True)
class Figure:
    """Σ_i weight_i · (q · part_i) / (q · whole_i) of a distribution q_J. given: of problems with certain
    counts."""

    weight_I: np.ndarray
    part_IJ: np.ndarray
    whole_IJ: np.ndarray
    given: bool = False


def seen(n: int, c: int) -> np.ndarray:
    """Chance_J of one order of c correct and n − c wrong rollouts."""
    return CHANCE_J**c * (1 - CHANCE_J) ** (n - c)


def mean_of(value_J: np.ndarray) -> Figure:
    """Of a problem of which nothing is known."""
    return Figure(np.ones(1), value_J[None], np.ones((1, len(CHANCE_J))))


def share_of(part_J: np.ndarray, whole_J: np.ndarray) -> Figure:
    return Figure(np.ones(1), part_J[None], whole_J[None])


def mean_given(counts: Pairs, value_J: Callable[[tuple[int, int]], np.ndarray]) -> Figure:
    """Mean over problems of which these counts were seen."""
    pairs = sorted(set(counts))
    whole_IJ = np.array([seen(*pair) for pair in pairs])
    whole_IJ /= whole_IJ.max(axis=1, keepdims=True)
    weight_I = np.array([counts.count(pair) for pair in pairs]) / len(counts)
    return Figure(weight_I, whole_IJ * np.array([value_J(pair) for pair in pairs]), whole_IJ, given=True)


def ranges(counts: Pairs, figures: Mapping[str, Figure], alike: float = 1.0) -> dict[str, tuple[float, float]]:
    """(low, high) of each figure over the distributions whose log likelihood is less than UNTOLD, or UNTOLD_GIVEN,
    below the best, times how many near-duplicates are `alike`: the likelihood counts each as a problem of its own.

    At each price the likelihood, less or plus what the figure is worth, is made as large as it gets: q · (its slope),
    scaled to sum to 1, never lowers it (Baum and Eagon 1967). The ends lie where the likelihood has fallen so far.
    """
    pairs, often_C = np.unique(np.array(counts), axis=0, return_counts=True)
    like_CJ = np.array([seen(n, c) for n, c in pairs.tolist()])
    like_CJ /= like_CJ.max(axis=1, keepdims=True)
    price_2V1 = (PRICE_V * np.array([[-1.0], [1.0]]))[:, :, None]
    fits, values = [], []
    for f in figures.values():
        q_2VJ = np.full((2, len(PRICE_V), len(CHANCE_J)), 1 / len(CHANCE_J))
        for _ in range(STEPS):
            part, whole = q_2VJ @ f.part_IJ.T, np.maximum(q_2VJ @ f.whole_IJ.T, 1e-300)
            worth = f.weight_I / whole
            slope = price_2V1 * (worth @ f.part_IJ - (worth * part / whole) @ f.whole_IJ)
            slope -= slope.min(axis=-1, keepdims=True)
            q_2VJ = q_2VJ * ((often_C / np.maximum(q_2VJ @ like_CJ.T, 1e-300)) @ like_CJ + slope)
            q_2VJ /= q_2VJ.sum(axis=-1, keepdims=True)
        fits.append(np.log(np.maximum(q_2VJ @ like_CJ.T, 1e-300)) @ often_C)
        values.append((f.weight_I * (q_2VJ @ f.part_IJ.T) / np.maximum(q_2VJ @ f.whole_IJ.T, 1e-300)).sum(axis=-1))
    found, best = {}, np.max(fits)
    for (name, f), fit_2V, value_2V in zip(figures.items(), fits, values, strict=True):
        # both grow with the price; the root of what the likelihood falls by does so in proportion to the figure
        falls_2V = np.maximum.accumulate(np.sqrt(best - fit_2V), axis=1)
        at = np.sqrt(alike * (UNTOLD_GIVEN if f.given else UNTOLD))
        low_V, high_V = np.minimum.accumulate(value_2V[0]), np.maximum.accumulate(value_2V[1])
        found[name] = float(np.interp(at, falls_2V[0], low_V)), float(np.interp(at, falls_2V[1], high_V))
    return found


def too_few(problems: int) -> str | None:
    """Why figures of so many problems of a band have no bounds; null where they have."""
    if problems >= FEWEST:
        return None
    return f"{problems} problem{' is' if problems == 1 else 's are'} in it: bounds want {FEWEST}"


def bounds(told: Mapping[str, float], problems: int) -> str:
    """What stands in the place of an interval of problems with certain counts. Few rollouts leave open how the same
    problems go on, and more problems do not tell: an interval that holds for any pool covered 98 to 100 % of studies,
    and one of a shape of pools none of those of another shape."""
    return too_few(problems) or (
        f"no interval: rollouts so few do not tell it; {told['low']:.3f} to {told['high']:.3f} in any pool that would"
        " give these counts"
    )


# How a pool's difficulty is spread, from counts: a beta-binomial with a share of problems that nothing solves.
#
# A group of G rollouts that are all wrong may still be a problem that a larger group would learn from. The fit says how
# many of those there are, and how many live groups to expect at another group size: eight rollouts hardly tell a hard
# problem from an impossible one. Intervals of the three parameters are their profile likelihood's (`plausible`); those
# of what is expected hold whatever the shape of the difficulty (`difficulty.ranges`).

#: Grid of the logit of the mean, log(a + b) and the share that nothing solves, and how often it is narrowed.
GRID, SIDES, LOOKS = 25, ((-6.0, 6.0), (-3.0, 6.0), (0.0, 0.98)), 5
UNLIKELY = 1.92  # log likelihood below the best: half of χ²'s 95 % quantile with one degree of freedom


@dataclass(frozen=True, slots=True)
class BetaBinomial:
    """Nothing solves a share `zero` of the problems; of the others each has a chance of a correct rollout drawn from
    Beta(a, b). Floats, or arrays of equal shape: one model each."""

    a: Any
    b: Any
    zero: Any = 0.0

    def live_share(self, group_size: int) -> Any:
        """Expected share of groups with both outcomes at this size: (1 − zero) · (1 − E[(1−p)^G] − E[p^G]).

        >>> round(float(BetaBinomial(1.0, 1.0).live_share(2)), 6)
        0.333333
        """
        return (1.0 - self.zero) * (1.0 - self.chance(group_size, 0) - self.chance(group_size, group_size))

    def chance(self, n: int, c: int) -> Any:
        """Of one order of c correct and n − c wrong rollouts, for a problem that can be solved."""
        from scipy.special import betaln

        return np.exp(betaln(self.a + c, self.b + n - c) - betaln(self.a, self.b))

    def live_given(self, n: int, c: int, group_size: int) -> Any:
        """The same for a problem of which c of n rollouts were correct.

        >>> round(float(BetaBinomial(1.0, 1.0).live_given(8, 0, 2)), 6)
        0.163636
        >>> round(float(BetaBinomial(1.0, 1.0, zero=0.5).live_given(8, 0, 2)), 6)  # one in ten of these can be solved
        0.016364
        """
        return self.bands_given(n, c, group_size)[1]

    def bands_given(self, n: int, c: int, group_size: int) -> tuple[Any, Any, Any]:
        """Chances of all_zero, variance and all_one at this size for a problem of which c of n rollouts were correct.

        >>> [round(float(p), 4) for p in BetaBinomial(1.0, 1.0).bands_given(1, 0, 2)]
        [0.5, 0.3333, 0.1667]
        """
        solvable = 1.0
        if c == 0:
            able = (1.0 - self.zero) * self.chance(n, 0)
            solvable = able / (able + self.zero)
        now = BetaBinomial(self.a + c, self.b + n - c)
        live = solvable * now.live_share(group_size)
        ones = solvable * now.chance(group_size, group_size)
        return 1.0 - live - ones, live, ones


def rollouts_until_decided(n: int, c: int) -> float:
    """Expected rollouts until both a correct and a wrong one were seen, of n of which c are correct, drawn in any
    order; n where they never are. Stopping there gives the same band as drawing all n.

    >>> rollouts_until_decided(8, 0), rollouts_until_decided(2, 1), round(rollouts_until_decided(8, 4), 4)
    (8.0, 2.0, 2.6)
    """
    undecided = [1.0] + [(comb(c, t) + comb(n - c, t)) / comb(n, t) for t in range(1, n)]
    return float(sum(undecided))


def adaptive_saving(counts: Pairs) -> dict[str, Any]:
    """`adaptive_saving`: rollouts that stopping at a decided band would not have sampled (count, share). Where the
    screening did stop, what it did not sample of the largest group.

    >>> adaptive_saving([(8, 0), (2, 1)])["count"], adaptive_saving([(2, 1), (2, 1)])["count"]
    (6, 0)
    """
    row: dict[str, Any] = {"metric": "adaptive_saving", "n": len(counts)}
    sampled, whole = sum(n for n, _ in counts), len(counts) * max((n for n, _ in counts), default=0)
    if not sampled:
        return row | {"reason": "no problem of this source"}
    if sampled < whole:
        return row | {"count": whole - sampled, "estimate": 1 - sampled / whole, "reason": "measured: screened so"}
    used = sum(rollouts_until_decided(*pair) for pair in counts)
    return row | {"count": round(sampled - used), "estimate": 1 - used / sampled}


def fit(counts: Pairs) -> BetaBinomial | None:
    """Maximum likelihood over (n, c) pairs; null where the likelihood has no maximum inside (all alike, or n = 1)."""
    from scipy.optimize import minimize

    if len(counts) < 5 or all(n < 2 for n, _ in counts) or sum(c for _, c in counts) in (0, sum(n for n, _ in counts)):
        return None
    likelihood = _likelihood(counts)

    def loss(at: np.ndarray) -> float:
        return -float(likelihood(BetaBinomial(np.exp(at[0]), np.exp(at[1]), at[2])))

    starts = [[*np.log(ab), zero] for ab, zero in (((0.3, 1.0), 0.0), ((1.0, 1.0), 0.3), ((3.0, 3.0), 0.1))]
    bounds = [(-7, 7), (-7, 7), (0.0, 0.99)]
    best = min((minimize(loss, s, method="L-BFGS-B", bounds=bounds) for s in starts), key=lambda r: r.fun)
    a, b = np.exp(best.x[:2])
    return BetaBinomial(float(a), float(b), float(best.x[2]))


@dataclass(frozen=True, slots=True)
class Fitted:
    """The most likely model, and those whose likelihood is not told from its own."""

    model: BetaBinomial
    models: BetaBinomial
    mask_JJ: np.ndarray

    def told(self, value: Callable[[BetaBinomial], Any]) -> dict[str, float]:
        """estimate, low and high of a model's figure: its profile-likelihood interval."""
        near = np.broadcast_to(value(self.models), self.mask_JJ.shape)[self.mask_JJ]
        return self.within(value, (float(near.min()), float(near.max())))

    def within(self, value: Callable[[BetaBinomial], Any], ends: tuple[float, float]) -> dict[str, float]:
        """estimate of the most likely model, and ends that hold it."""
        at = float(value(self.model))
        return {"estimate": at, "low": min(ends[0], at), "high": max(ends[1], at)}


def fitted(counts: Pairs, alike: float = 1.0) -> Fitted | None:
    """None where nothing can be fitted. The models are a grid of a, b: (J, 1) and zero: (1, J), narrowed to those whose
    likelihood is not told from the best one's."""
    model = fit(counts)
    if model is None:
        return None
    likelihood, axes = _likelihood(counts), [np.linspace(low, high, GRID) for low, high in SIDES]
    looks = 0
    while True:
        mean, size, zero = axes
        share, total = 1 / (1 + np.exp(-np.repeat(mean, GRID)))[:, None], np.exp(np.tile(size, GRID))[:, None]
        models = BetaBinomial(share * total, (1 - share) * total, zero[None, :])
        found_JJ = likelihood(models)
        mask_JJ = found_JJ > found_JJ.max() - UNLIKELY * alike
        looks += 1
        if looks == LOOKS:
            return Fitted(model, models, mask_JJ)
        places = np.nonzero(mask_JJ.reshape(GRID, GRID, -1))
        axes = [  # one step further than what is plausible
            np.linspace(axis[max(at.min() - 1, 0)], axis[min(at.max() + 1, len(axis) - 1)], GRID)
            for axis, at in zip(axes, places, strict=True)
        ]


def _likelihood(counts: Pairs) -> Callable[[BetaBinomial], Any]:
    pairs, times = np.unique(np.array(counts), axis=0, return_counts=True)

    def log_likelihood(model: BetaBinomial) -> Any:
        total = 0.0
        for (n, c), often in zip(pairs.tolist(), times.tolist(), strict=True):
            chance = (1.0 - model.zero) * model.chance(n, c) + (model.zero if c == 0 else 0.0)
            total = total + often * np.log(np.maximum(chance, 1e-300))
        return total

    return log_likelihood


def expectations(counts: Pairs, group_size: int, alike: float = 1.0) -> list[dict[str, Any]]:
    """Rows of the cross-tab: what a group size of `group_size` would make of these problems.

    beta_a, beta_b, beta_zero: the fit; expected_live: share of groups with both outcomes; live_in_band, mislabelled:
    the same among problems whose own group had both outcomes, or had not, with bounds in the reason. alike:
    `means.repeated` of their clusters.
    """
    found, n = fitted(counts, alike), len(counts)
    shared = {"n": n}
    if found is None:
        why = "too few problems, groups of one rollout, or all rollouts alike: no beta-binomial can be fitted"
        names = ("expected_live", "live_in_band", "mislabelled")
        return [shared | {"metric": q, "estimate": None, "reason": why} for q in names]

    banded = [pair for pair in counts if in_variance_band(pair[1], pair[0])]
    dead = [pair for pair in counts if not in_variance_band(pair[1], pair[0])]
    by_band = {name: [p for p in dead if band(p[1], p[0]) is name] for name in (Band.ALL_ZERO, Band.ALL_ONE)}
    parts = {("live_in_band", Band.VARIANCE): banded, ("mislabelled", None): dead}
    parts |= {("mislabelled", name): mine for name, mine in by_band.items()}
    live_J = variance_chance(CHANCE_J, group_size)
    figures = {str(key): mean_given(mine, lambda _: live_J) for key, mine in parts.items() if mine}
    ends = ranges(counts, {"live": mean_of(live_J)} | figures, alike)

    def among(key: tuple[str, Band | None], mine: Pairs) -> dict[str, Any]:
        """count: problems expected to be live at the training group size; estimate: their share."""
        row: dict[str, Any] = {"metric": key[0], "band": key[1], "n": len(mine)}
        if not mine:
            return row | {"reason": "no problem in this band"}
        often = {pair: mine.count(pair) / len(mine) for pair in set(mine)}
        share = found.within(
            lambda m: sum(w * m.live_given(*pair, group_size) for pair, w in sorted(often.items())), ends[str(key)]
        )
        at = share["estimate"]
        return row | {"count": round(len(mine) * at), "estimate": at, "reason": bounds(share, len(mine))}

    return [
        *(
            shared | {"metric": f"beta_{name}"} | found.told(lambda m, name=name: getattr(m, name))
            for name in ("a", "b", "zero")
        ),
        shared | {"metric": "expected_live"} | found.within(lambda m: m.live_share(group_size), ends["live"]),
        *(among(key, mine) for key, mine in parts.items()),
    ]

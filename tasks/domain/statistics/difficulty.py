"""The distribution of problem difficulty, estimated from counts of correct rollouts: a beta-binomial fit, and the range
of each figure over all plausible distributions.

The fit gives the estimate. The interval of the fit is valid only if success rates follow a beta distribution; for some
other pools it never contained the true value (docs/coverage.md). So intervals are ranges over all distributions with a
likelihood close to the maximum. Such an interval is wide if the rollouts are too few to predict larger groups.

Axes: C classes of equal (n, c), J success rates, I terms of a figure, F figures, V prices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from storage.estimates import Band, band, variance_chance

Pairs = Sequence[tuple[int, int]]
CHANCE_J = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-6.5, 6.5, 41))), [1.0]])
FEWEST = 5  # problems in a band; with fewer, no bounds are given
#: Distributions are plausible if their log likelihood is at most this far below the maximum. First value: for figures
#: of any problem; second: for bounds of figures of problems with given counts. With 1.92, the value for one parameter,
#: intervals covered 92 to 97 % of the first and 86 to 100 % of the second (docs/coverage.md).
PLAUSIBLE, PLAUSIBLE_GIVEN = 2.2, 3.0
#: Lagrange multipliers of a figure (log likelihood per unit), and iterations for each. The ends of an interval are
#: interpolated between them.
PRICE_V, STEPS = np.concatenate([[0.0], np.geomspace(1.0, 2000.0, 14)]), 300


@dataclass(frozen=True, slots=True)
class Figure:
    """A functional Σ_i weight_i · (q · part_i) / (q · whole_i) of q_J. given: it is conditional on observed counts."""

    weight_I: np.ndarray
    part_IJ: np.ndarray
    whole_IJ: np.ndarray
    given: bool = False


def seen(n: int, c: int) -> np.ndarray:
    """Return, for each success rate_J, the probability of c correct and n − c wrong rollouts in one fixed order."""
    return CHANCE_J**c * (1 - CHANCE_J) ** (n - c)


def share_of(part_J: np.ndarray, whole_J: np.ndarray | float = 1.0) -> Figure:
    """Return the ratio of the means of two values over all problems, or the mean of the first if only one is given."""
    return Figure(np.ones(1), part_J[None], np.broadcast_to(whole_J, (1, len(CHANCE_J))))


def mean_given(counts: Pairs, value_J: Callable[[tuple[int, int]], np.ndarray]) -> Figure:
    """Return the mean of a value over problems with these observed counts."""
    pairs = sorted(set(counts))
    whole_IJ = np.array([seen(*pair) for pair in pairs])
    whole_IJ /= whole_IJ.max(axis=1, keepdims=True)
    weight_I = np.array([counts.count(pair) for pair in pairs]) / len(counts)
    return Figure(weight_I, whole_IJ * np.array([value_J(pair) for pair in pairs]), whole_IJ, given=True)


def ranges(counts: Pairs, figures: Mapping[str, Figure], alike: float = 1.0) -> dict[str, tuple[float, float]]:
    """Return (low, high) of each figure over all plausible distributions. alike: mean number of near-duplicates per
    problem, by which the log likelihood is divided. For each multiplier the update q ← q · gradient, normalised,
    maximises likelihood ± multiplier × figure and never lowers it (Baum and Eagon 1967). The ends of the range are
    where the log likelihood is below its maximum by the limit of plausibility.
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
        # both grow with the price; the root of the loss in likelihood is about proportional to the figure
        falls_2V = np.maximum.accumulate(np.sqrt(best - fit_2V), axis=1)
        at = np.sqrt(alike * (PLAUSIBLE_GIVEN if f.given else PLAUSIBLE))
        low_V, high_V = np.minimum.accumulate(value_2V[0]), np.maximum.accumulate(value_2V[1])
        found[name] = float(np.interp(at, falls_2V[0], low_V)), float(np.interp(at, falls_2V[1], high_V))
    return found


def too_few(problems: int) -> str | None:
    """Return why a band with so few problems has no bounds; None if it has enough."""
    if problems >= FEWEST:
        return None
    return f"{problems} problem{' is' if problems == 1 else 's are'} in it: bounds want {FEWEST}"


def bounds(bound: Mapping[str, float], problems: int) -> str:
    """Return the text that replaces an interval for problems with given counts. In simulations, bounds for any pool
    covered 98 to 100 % of studies, but an interval that assumes a shape of the pool covered none of another shape."""
    return too_few(problems) or (
        f"no interval: rollouts so few do not tell it; {bound['low']:.3f} to {bound['high']:.3f} in any pool that would"
        " give these counts"
    )


# ---- beta-binomial fit of success rates, with a share of problems that no rollout solves (zero inflation)
#
# The fit estimates how many of the problems with G wrong rollouts would give a gradient in a larger group, and how many
# live groups another group size gives. Intervals of the three parameters come from the profile likelihood; those of
# expected shares hold for any distribution of success rates (`ranges`).

#: Grid of three parameters (logit of the mean, log(a + b), unsolvable share): points, range of each, rounds of
#: narrowing.
GRID, SIDES, LOOKS = 25, ((-6.0, 6.0), (-3.0, 6.0), (0.0, 0.98)), 5
UNLIKELY = 1.92  # below the best log likelihood: half of χ²'s 95 % quantile with one degree of freedom


@dataclass(frozen=True, slots=True)
class BetaBinomial:
    """A share `zero` of problems is unsolvable; the others have success rates from Beta(a, b). Fields are floats, or
    arrays of equal shape with one model per entry."""

    a: Any
    b: Any
    zero: Any = 0.0

    def live_share(self, group_size: int) -> Any:
        """Return the expected share of groups with both outcomes: (1 − zero) · (1 − E[(1−p)^G] − E[p^G]).

        >>> round(float(BetaBinomial(1.0, 1.0).live_share(2)), 6)
        0.333333
        """
        return (1.0 - self.zero) * (1.0 - self.chance(group_size, 0) - self.chance(group_size, group_size))

    def chance(self, n: int, c: int) -> Any:
        """Return the probability of c correct and n − c wrong rollouts of a solvable problem in one fixed order."""
        from scipy.special import betaln

        return np.exp(betaln(self.a + c, self.b + n - c) - betaln(self.a, self.b))

    def bands_given(self, n: int, c: int, group_size: int) -> tuple[Any, Any, Any]:
        """Return the chances of all_zero, variance and all_one in a group, if c of n other rollouts were correct.

        >>> [round(float(p), 4) for p in BetaBinomial(1.0, 1.0).bands_given(1, 0, 2)]
        [0.5, 0.3333, 0.1667]
        >>> round(float(BetaBinomial(1.0, 1.0, zero=0.5).bands_given(8, 0, 2)[1]), 6)  # one in ten can be solved
        0.016364
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
    """Return the expected number of rollouts until one is correct and one is wrong, if c of n are correct and their
    order is random; n if all are equal. Stopping there gives the same band as sampling all n rollouts.

    >>> rollouts_until_decided(8, 0), rollouts_until_decided(2, 1), round(rollouts_until_decided(8, 4), 4)
    (8.0, 2.0, 2.6)
    """
    undecided = [1.0] + [(comb(c, t) + comb(n - c, t)) / comb(n, t) for t in range(1, n)]
    return float(sum(undecided))


def adaptive_saving(counts: Pairs) -> dict[str, Any]:
    """Return the `adaptive_saving` row: the rollouts (count, share) that sampling saves if it stops once the band is
    known. If the screening stopped so, the count is relative to the largest group.

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
    """Fit a BetaBinomial to (n, c) pairs by maximum likelihood; None without an interior maximum."""
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
    """The most likely model, and a grid of models with a mask of the plausible ones."""

    model: BetaBinomial
    models: BetaBinomial
    mask_JJ: np.ndarray

    def within(self, value: Callable[[BetaBinomial], Any], ends: tuple[float, float]) -> dict[str, float]:
        """Return the estimate of the most likely model, and the ends, widened so that they contain it."""
        at = float(value(self.model))
        return {"estimate": at, "low": min(ends[0], at), "high": max(ends[1], at)}


def fitted(counts: Pairs, alike: float = 1.0) -> Fitted | None:
    """Fit a BetaBinomial and its plausible models; None if nothing can be fitted. The models are a grid of a, b: (J, 1)
    and zero: (1, J), narrowed to the plausible region."""
    model = fit(counts)
    if model is None:
        return None
    likelihood, sides, models, mask_JJ = _likelihood(counts), [*SIDES], model, np.ones(0)
    for _ in range(LOOKS):
        mean, size, zero = axes = [np.linspace(low, high, GRID) for low, high in sides]
        share, total = 1 / (1 + np.exp(-np.repeat(mean, GRID)))[:, None], np.exp(np.tile(size, GRID))[:, None]
        models = BetaBinomial(share * total, (1 - share) * total, zero[None, :])
        found_JJ = likelihood(models)
        mask_JJ = found_JJ > found_JJ.max() - UNLIKELY * alike
        places = zip(axes, np.nonzero(mask_JJ.reshape(GRID, GRID, -1)), strict=True)
        # one step beyond the plausible range
        sides = [(axis[max(at.min() - 1, 0)], axis[min(at.max() + 1, GRID - 1)]) for axis, at in places]
    return Fitted(model, models, mask_JJ)


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
    """Return rows of the cross-tab: the expected bands of these problems with groups of `group_size` rollouts.

    beta_a, beta_b, beta_zero: the fit. expected_live: expected share of groups with both outcomes. live_in_band,
    mislabelled: the same share among problems whose own group had both outcomes, or only one; the reason holds their
    bounds. alike: `means.repeated` of the problems' clusters.
    """
    found, n = fitted(counts, alike), len(counts)
    shared = {"n": n}
    if found is None:
        why = "too few problems, groups of one rollout, or all rollouts alike: no beta-binomial can be fitted"
        names = ("expected_live", "live_in_band", "mislabelled")
        return [shared | {"metric": q, "estimate": None, "reason": why} for q in names]

    dead = [Band.ALL_ZERO, Band.ALL_ONE]
    bands = {("live_in_band", Band.VARIANCE): [Band.VARIANCE], ("mislabelled", None): dead}
    bands |= {("mislabelled", one): [one] for one in dead}
    parts = {key: [(n, c) for n, c in counts if band(c, n) in own] for key, own in bands.items()}
    live_J = variance_chance(CHANCE_J, group_size)
    figures = {str(key): mean_given(mine, lambda _: live_J) for key, mine in parts.items() if mine}
    ends = ranges(counts, {"live": share_of(live_J)} | figures, alike)

    def among(key: tuple[str, Band | None], mine: Pairs) -> dict[str, Any]:
        """Return count (problems expected to be live at the training group size) and estimate (their share)."""
        row: dict[str, Any] = {"metric": key[0], "band": key[1], "n": len(mine)}
        if not mine:
            return row | {"reason": "no problem in this band"}
        share = found.within(lambda m: np.mean([m.bands_given(*p, group_size)[1] for p in mine]), ends[str(key)])
        at = share["estimate"]
        return row | {"count": round(len(mine) * at), "estimate": at, "reason": bounds(share, len(mine))}

    rows = []
    for name in ("a", "b", "zero"):  # with the interval of the profile likelihood
        near = np.broadcast_to(getattr(found.models, name), found.mask_JJ.shape)[found.mask_JJ]
        fit_of = found.within(lambda m, name=name: getattr(m, name), (float(near.min()), float(near.max())))
        rows.append(shared | {"metric": f"beta_{name}"} | fit_of)
    rows.append(shared | {"metric": "expected_live"} | found.within(lambda m: m.live_share(group_size), ends["live"]))
    return rows + [among(key, mine) for key, mine in parts.items()]

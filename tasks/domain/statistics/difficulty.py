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

import numpy as np

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


def live(size: int) -> np.ndarray:
    """Chance_J that a group has both outcomes."""
    return 1 - CHANCE_J**size - (1 - CHANCE_J) ** size


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
    weight_FI, part_FIJ, whole_FIJ = _stacked(list(figures.values()))
    price_2V1 = (PRICE_V * np.array([[-1.0], [1.0]]))[:, :, None]
    q_F2VJ = np.full((len(weight_FI), 2, len(PRICE_V), len(CHANCE_J)), 1 / len(CHANCE_J))
    for _ in range(STEPS):
        part, whole = _parts(q_F2VJ, part_FIJ, whole_FIJ)
        worth = weight_FI[:, None, None] / whole
        slope = price_2V1 * (worth @ part_FIJ[:, None] - (worth * part / whole) @ whole_FIJ[:, None])
        slope -= slope.min(axis=-1, keepdims=True)
        q_F2VJ = q_F2VJ * ((often_C / np.maximum(q_F2VJ @ like_CJ.T, 1e-300)) @ like_CJ + slope)
        q_F2VJ /= q_F2VJ.sum(axis=-1, keepdims=True)
    fit_F2V = np.log(np.maximum(q_F2VJ @ like_CJ.T, 1e-300)) @ often_C
    part, whole = _parts(q_F2VJ, part_FIJ, whole_FIJ)
    value_F2V = (weight_FI[:, None, None] * part / whole).sum(axis=-1)
    below_F2V = np.sqrt(fit_F2V.max() - fit_F2V)
    untold = [np.sqrt(alike * (UNTOLD_GIVEN if one.given else UNTOLD)) for one in figures.values()]
    return {name: _ends(below_F2V[f], value_F2V[f], untold[f]) for f, name in enumerate(figures)}


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


def _ends(below_2V: np.ndarray, value_2V: np.ndarray, at: float) -> tuple[float, float]:
    """Both grow with the price; the square root of what the likelihood falls by does so in proportion to the figure."""
    falls_2V = np.maximum.accumulate(below_2V, axis=1)
    low_V, high_V = np.minimum.accumulate(value_2V[0]), np.maximum.accumulate(value_2V[1])
    return float(np.interp(at, falls_2V[0], low_V)), float(np.interp(at, falls_2V[1], high_V))


def _stacked(figures: Sequence[Figure]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Figures of as many terms: what one lacks weighs nothing."""
    terms = max(len(f.weight_I) for f in figures)
    more = [terms - len(f.weight_I) for f in figures]
    return (
        np.stack([np.pad(f.weight_I, (0, m)) for f, m in zip(figures, more, strict=True)]),
        np.stack([np.pad(f.part_IJ, ((0, m), (0, 0))) for f, m in zip(figures, more, strict=True)]),
        np.stack([np.pad(f.whole_IJ, ((0, m), (0, 0)), constant_values=1) for f, m in zip(figures, more, strict=True)]),
    )


def _parts(q_F2VJ: np.ndarray, part_FIJ: np.ndarray, whole_FIJ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    part, whole = (q_F2VJ @ one.transpose(0, 2, 1)[:, None] for one in (part_FIJ, whole_FIJ))
    return part, np.maximum(whole, 1e-300)

"""Several trainings with one recipe: interquartile mean over seeds and sources, and probability of improvement."""

from itertools import product

import numpy as np
import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.schemas import Rollouts
from storage.estimates import LEVEL, resample_classes
from tasks.domain.statistics.curves_of_k import INCOMPLETE
from tasks.domain.statistics.means import ONE_PROBLEM, SILENT, Shifts, holds_for, same_adapters
from tasks.domain.statistics.shares import around, proportions, unseen
from tasks.evidence import standard_measure
from tasks.measures.groups import Row, accuracy, counts_of, read_groups
from tasks.stage import stage

# One very good or broken seed hardly changes an interquartile mean (Agarwal et al. 2021, arXiv 2108.13264).
# Axes: S seeds, P problems.

DRAWS = 400  # enough for a standard error


def interquartile_mean(scores: np.ndarray) -> float:
    """Return the mean of the middle half of the values. A value on the border counts in part.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])), interquartile_mean(np.array([1.0, 2.0, 3.0]))
    (2.0, 2.0)
    """
    ordered = np.sort(scores.ravel())
    n = len(ordered)
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    return float(np.diff(edges) @ ordered / 0.5)


def over_seeds_and_sources(parts_SP: list[np.ndarray], seed: int) -> tuple[float, float, float]:
    """Return (estimate, low, high) of the interquartile mean over seeds × sources. parts_SP: one array of values by
    seed and problem per source. The ends are NaN for fewer than three seeds.

    The variance is that of a bootstrap over the problems of each source, corrected near 0 and 1, plus that of a
    jackknife over seeds. The interval is computed as for a share (`shares.around`), so it has a width at 0 and 1 too.
    """
    seeds = len(parts_SP[0])
    scores = np.stack([part.mean(axis=1) for part in parts_SP])
    at = interquartile_mean(scores)
    if seeds < 3:
        return at, np.nan, np.nan
    without = np.array([interquartile_mean(np.delete(scores, s, axis=1)) for s in range(seeds)])
    between = float((seeds - 1) / seeds * ((without - without.mean()) ** 2).sum())
    resamples = np.stack(
        [resample_classes(np.ones(p.shape[1], np.int64), DRAWS, seed + i) @ p.T for i, p in enumerate(parts_SP)], axis=1
    )
    within = float(np.var([interquartile_mean(one) for one in resamples], ddof=1))
    n, at_V = sum(p.shape[1] for p in parts_SP), np.array([at])
    more_V = unseen(at_V, n)
    middle_V = (n * at_V + more_V) / (n + 2 * more_V)
    squares_V = n * (n * within + (at_V - middle_V) ** 2) + more_V * (middle_V**2 + (1 - middle_V) ** 2)
    freedom_V = np.array([max(n - len(parts_SP), 1.0)])
    shift = Shifts(1.0, at_V, np.array([between]), seeds)
    low_V, high_V = around(at_V, middle_V, squares_V / (n + 2 * more_V) / n, freedom_V, [shift])
    return at, float(low_V[0]), float(high_V[0])


def improvement_of_pairs(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """Return the chance that the same adapter scores higher under the first recipe than under the second, with the
    interval of a share of seeds. Ties count half.

    >>> [round(v, 3) for v in improvement_of_pairs(np.array([3.0, 4, 5, 6, 7]), np.array([2.0, 3, 4, 5, 6]))]
    [1.0, 0.489, 1.0]
    """
    won_1S1 = np.where(first_S == second_S, 0.5, first_S > second_S)[None, :, None]
    low_V, high_V = proportions(won_1S1, trained=False)
    return float(won_1S1.mean()), float(low_V[0]), float(high_V[0])


def improvement(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """Return (estimate, low, high) of the chance that a seed of the first recipe scores higher than one of the second.
    Ties count half. The interval is a score interval, whose width is never 0 (Newcombe 2006, part 2, method 5).

    >>> [round(v, 3) for v in improvement(np.array([3.0, 4, 5]), np.array([1.0, 2, 3]))]
    [0.944, 0.448, 0.997]
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    away = first_S[:, None] - second_S[None, :]
    at, m, n = float(((away > 0) + 0.5 * (away == 0)).mean()), len(first_S), len(second_S)
    z, more = float(norm.ppf((1 + LEVEL) / 2)), (m + n) / 2 - 1

    def excess(theta: float) -> float:
        variance = theta * (1 - theta) * (1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / (m * n)
        return (at - theta) ** 2 - z * z * variance

    inside = min(max(at, 1e-9), 1 - 1e-9)  # at 0 and at 1 the variance would be 0
    low = 0.0 if at == 0 else float(brentq(excess, 0.0, inside))  # type: ignore[arg-type]
    high = 1.0 if at == 1 else float(brentq(excess, inside, 1.0))  # type: ignore[arg-type]
    return at, low, high


def deviation(scores_S: np.ndarray) -> tuple[float, float, float]:
    """Return (SD of seed scores, low, high). The chi-square interval is NaN if all seeds are equal.

    >>> [round(v, 3) for v in deviation(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))]
    [0.158, 0.095, 0.454]
    """
    from scipy.stats import chi2

    free = len(scores_S) - 1
    if free < 1 or np.ptp(scores_S) < 1e-12:
        return 0.0, np.nan, np.nan
    at = float(scores_S.std(ddof=1))
    low, high = (at * float(np.sqrt(free / chi2.ppf(p, free))) for p in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    return at, low, high


#: Fewest seeds for an interval. With fewer, coverage is below the nominal level (docs/coverage.md).
FEWEST_FOR_MEANS, FEWEST_FOR_CHANCES = 3, 5


class OverSeeds(
    Ref,
    kind="over_seeds",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, estimate real, low real, high real",
        "mean real, other_mean real, n big, seeds int, other_seeds int, holds_for str, reason str",
    ),
):
    """Statistics over seeds, for each arm and for every two arms."""


def over_seeds_of(groups: pa.Table, seed: int) -> pa.Table:
    """Return statistics over seeds of the last step of each trained arm.

    metric: `interquartile mean` of accuracy over seeds × sources; `SD between seeds` of the accuracy on these problems,
    with sampling noise; `probability of improvement`, for all sources and each: the chance that a new seed of the arm
    solves more of these problems than a seed of the other arm (with shared adapters: than the same seed). mean: over
    problems and seeds. n: problems. With too few seeds an interval is None, with a reason.
    """
    counts = counts_of(groups)
    last = {arm: span[1] for arm, span in counts.spans.items() if span[1] > 0}
    found = {
        (arm, source): accuracy(counts, (arm, step, source))
        for arm, step, source in counts.places
        if last.get(arm) == step
    }
    accuracy_SP, rows = {place: one.clustered()[:, :, 0] for place, one in found.items()}, list[Row]()
    for arm, step in last.items():
        parts_SP = [v for (a, s), v in accuracy_SP.items() if a == arm and s != "all" and v.shape[1]]
        about = {"arm": arm, "step": step, "source": "all", "n": sum(p.shape[1] for p in parts_SP)}
        if not parts_SP:
            rows.append(about | {"metric": "interquartile mean", "reason": INCOMPLETE})
            continue
        seeds = len(parts_SP[0])
        about |= {"mean": float(np.concatenate([p.mean(axis=0) for p in parts_SP]).mean()), "seeds": seeds}
        few = f"of some source: {ONE_PROBLEM}" if any(part.shape[1] < 2 for part in parts_SP) else None
        why = _too_few(seeds, FEWEST_FOR_MEANS)
        middle = _row("interquartile mean", over_seeds_and_sources(parts_SP, seed), why or few, holds_for(seeds))
        spread = deviation(accuracy_SP[arm, "all"].mean(axis=1))
        rows += [about | middle, about | _row("SD between seeds", spread, why, "new seeds, on these problems")]
    for (one, source), other in product(accuracy_SP, last):
        if one >= other or (other, source) not in accuracy_SP:
            continue
        first_SP, second_SP = accuracy_SP[one, source], accuracy_SP[other, source]
        row = {"arm": one, "step": last[one], "other": other, "other_step": last[other], "source": source}
        row |= {"n": first_SP.shape[1], "seeds": len(first_SP), "other_seeds": len(second_SP)}
        shared = same_adapters([found[arm, source].adapter_S for arm in (one, other)])
        rows.append(row | _improved(first_SP, second_SP, shared))
    return pa.Table.from_pylist(rows, schema=OverSeeds.schema)


def _row(metric: str, found: tuple[float, float, float], why: str | None, whose: str | None) -> Row:
    """Return a row of the table. found: estimate, low, high. why: the reason for leaving out the interval."""
    row: Row = {"metric": metric, "estimate": found[0], "holds_for": whose}
    if why or not np.isfinite(found[1]):
        return row | {"reason": why or SILENT}
    return row | {"low": found[1], "high": found[2]}


def _too_few(seeds: int, wanted: int) -> str | None:
    return f"{seeds} seed{'s' if seeds > 1 else ''}: an interval of this wants {wanted}" if seeds < wanted else None


def _improved(first_SP: np.ndarray, second_SP: np.ndarray, shared: bool) -> Row:
    metric = "probability of improvement"
    if not first_SP.shape[1] or first_SP.shape[1] != second_SP.shape[1]:
        return {"metric": metric, "reason": "the two were not asked the same problems"}
    scores = [values.mean(axis=1).round(12) for values in (first_SP, second_SP)]
    found = (improvement_of_pairs if shared else improvement)(*scores)
    whose = "new seeds, each under both arms" if shared else "new seeds of both recipes"
    row = _row(metric, found, _too_few(min(map(len, scores)), FEWEST_FOR_CHANCES), f"{whose}, on these problems")
    return row | {"mean": float(scores[0].mean()), "other_mean": float(scores[1].mean())}


@standard_measure("over_seeds", needs=("trainings",), rollouts="final")
@stage(OverSeeds, version=5)
def look_over_seeds(*, rollouts: tuple[Rollouts, ...], seed: int = 0) -> pa.Table:
    """Return the interquartile mean and the probability of improvement over the seeds of each arm."""
    return over_seeds_of(read_groups(rollouts), seed)

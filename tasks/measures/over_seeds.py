"""Several trainings of one recipe: the interquartile mean over seeds and sources, and how often one arm's seed beats
another's."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.rules import LEVEL, resample_classes
from tasks.domain.statistics.means import ONE_PROBLEM, SILENT, Shifts, by_seed, folded, holds_for, same_adapters
from tasks.domain.statistics.shares import around, proportions, unseen
from tasks.measures.groups import counts_of, read_groups
from tasks.measures.standard import standard_measure
from tasks.stage import stage

# What several seeds of one recipe say together beside the mean: the interquartile mean, which a lucky or a broken
# seed does not move, and how often a seed of one recipe beats one of another.
#
# Source: Agarwal et al. 2021 (arXiv 2108.13264).
# Axes: S seeds, P problems.

DRAWS = 400  # for a standard error only


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half: the lowest and the highest quarter are cut off, in fractions where needed.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])), interquartile_mean(np.array([1.0, 2.0, 3.0]))
    (2.0, 2.0)
    """
    ordered = np.sort(scores.ravel())
    n = len(ordered)
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    return float(np.diff(edges) @ ordered / 0.5)


def over_seeds_and_sources(parts_SP: list[np.ndarray], seed: int) -> tuple[float, float, float]:
    """(estimate, low, high) of the interquartile mean over seeds × sources. parts_SP: a source's values by seed and
    problem. Ends are NaN for fewer than three seeds.

    The variance is a bootstrap's over the problems of each source, with what they leave unseen near an edge, and a
    jackknife's over seeds; the interval is that of a share (`shares.around`), so that it has a width at 0 and 1 too.
    """
    seeds = len(parts_SP[0])
    scores = np.stack([part.mean(axis=1) for part in parts_SP])
    at = interquartile_mean(scores)
    if seeds < 3:
        return at, np.nan, np.nan
    without = np.array([interquartile_mean(np.delete(scores, s, axis=1)) for s in range(seeds)])
    between = float((seeds - 1) / seeds * ((without - without.mean()) ** 2).sum())
    drawn = np.stack(
        [resample_classes(np.ones(p.shape[1], np.int64), DRAWS, seed + i) @ p.T for i, p in enumerate(parts_SP)], axis=1
    )
    within = float(np.var([interquartile_mean(one) for one in drawn], ddof=1))
    n, at_V = sum(p.shape[1] for p in parts_SP), np.array([at])
    more_V = unseen(at_V, n)
    middle_V = (n * at_V + more_V) / (n + 2 * more_V)
    squares_V = n * (n * within + (at_V - middle_V) ** 2) + more_V * (middle_V**2 + (1 - middle_V) ** 2)
    freedom_V = np.array([max(n - len(parts_SP), 1.0)])
    shift = Shifts(1.0, at_V, np.array([between]), seeds)
    low_V, high_V = around(at_V, middle_V, squares_V / (n + 2 * more_V) / n, freedom_V, [shift])
    return at, float(low_V[0]), float(high_V[0])


def improvement_of_pairs(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """The same where the s-th seed of both is one adapter: the chance that it scores higher under the first, ties
    counting half, with the interval of a share of seeds.

    >>> [round(v, 3) for v in improvement_of_pairs(np.array([3.0, 4, 5, 6, 7]), np.array([2.0, 3, 4, 5, 6]))]
    [1.0, 0.489, 1.0]
    """
    won_1S1 = np.where(first_S == second_S, 0.5, first_S > second_S)[None, :, None]
    low_V, high_V = proportions(won_1S1, trained=False)
    return float(won_1S1.mean()), float(low_V[0]), float(high_V[0])


def improvement(first_S: np.ndarray, second_S: np.ndarray) -> tuple[float, float, float]:
    """(estimate, low, high) of the chance that a seed of the first recipe scores higher than one of the second, ties
    counting half. The interval is a score interval, never of width 0. Source: Newcombe 2006, part 2, method 5.

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

    inside = min(max(at, 1e-9), 1 - 1e-9)  # at 0 and 1 themselves the variance is 0
    low = 0.0 if at == 0 else float(brentq(excess, 0.0, inside))  # type: ignore[arg-type]
    high = 1.0 if at == 1 else float(brentq(excess, inside, 1.0))  # type: ignore[arg-type]
    return at, low, high


#: Below these an interval over seeds covers less than it says (docs/coverage.md).
FEWEST_FOR_MEANS, FEWEST_FOR_CHANCES = 3, 5


class OverSeeds(
    Ref,
    kind="over_seeds",
    schema=nullable(
        "metric str, arm str, step int, other str, other_step int, source str, estimate real, low real, high real",
        "mean real, other_mean real, n big, seeds int, other_seeds int, holds_for str, reason str",
    ),
):
    """What seeds say together, per arm and for every two arms."""


def over_seeds_of(groups: pa.Table, seed: int) -> pa.Table:
    """Of every arm's last step, which was trained: metric `interquartile mean` of accuracy over seeds × sources, each
    source once; `probability of improvement`, the chance that a new seed of the arm solves more of these problems than
    one of the other, for all sources and for each; where both arms are the same adapters, than itself under
    the other. mean: the plain mean over problems and seeds; n: problems.

    Null with the reason where there are too few seeds for an interval.
    """
    counts = counts_of(groups)
    last = {arm: span[1] for arm, span in counts.spans.items() if span[1] > 0}
    found: dict[tuple[str, str], np.ndarray] = {}
    adapters: dict[tuple[str, str], np.ndarray] = {}
    for arm, step, source in counts.places:
        if last.get(arm) == step:
            found[arm, source], adapters[arm, source] = _by_seed(counts.at((arm, step, source)))
    sources = list(dict.fromkeys(source for _, source in found))
    rows = [
        {"arm": arm, "step": step} | _interquartile([v for (a, s), v in found.items() if a == arm and s != "all"], seed)
        for arm, step in last.items()
    ]
    for one, other in combinations(last, 2):
        for source in (s for s in sources if (one, s) in found and (other, s) in found):
            about = {"arm": one, "step": last[one], "other": other, "other_step": last[other], "source": source}
            shared = same_adapters([adapters[one, source], adapters[other, source]])
            rows.append(about | _improvement(found[one, source], found[other, source], shared))
    return pa.Table.from_pylist(rows, schema=OverSeeds.schema)


def _by_seed(of: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """((S, clusters) accuracy of the problems that every seed was asked, the adapters)."""
    accuracy_N = of["num_correct"] / of["group_size"]
    found = by_seed(of["problem"], of["adapter"], np.column_stack([accuracy_N, of["cluster"]]))
    return folded(found.values_SPV[:, :, :1], found.values_SPV[0, :, 1])[:, :, 0], found.adapter_S


def _interquartile(parts_SP: list[np.ndarray], seed: int) -> dict[str, Any]:
    parts_SP = [part for part in parts_SP if part.shape[1]]
    row: dict[str, Any] = {"metric": "interquartile mean", "source": "all", "n": sum(p.shape[1] for p in parts_SP)}
    if not parts_SP:
        return row | {"reason": "no problem was evaluated under every seed"}
    seeds = len(parts_SP[0])
    at, low, high = over_seeds_and_sources(parts_SP, seed)
    mean = float(np.concatenate([p.mean(axis=0) for p in parts_SP]).mean())
    row |= {"estimate": at, "mean": mean, "seeds": seeds, "holds_for": holds_for(seeds)}
    if seeds < FEWEST_FOR_MEANS:
        return row | _too_few(seeds, FEWEST_FOR_MEANS)
    if any(part.shape[1] < 2 for part in parts_SP):
        return row | {"reason": f"of some source: {ONE_PROBLEM}"}
    return row | ({"low": low, "high": high} if np.isfinite(low) else {"reason": SILENT})


def _too_few(seeds: int, wanted: int) -> dict[str, str]:
    return {"reason": f"{seeds} seed{'s' if seeds > 1 else ''}: an interval of this wants {wanted}"}


def _improvement(first_SP: np.ndarray, second_SP: np.ndarray, shared: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"metric": "probability of improvement", "n": first_SP.shape[1]}
    seeds = [len(first_SP), len(second_SP)]
    row |= {"seeds": seeds[0], "other_seeds": seeds[1]}
    if not first_SP.shape[1] or first_SP.shape != (seeds[0], second_SP.shape[1]):
        return row | {"reason": "the two were not asked the same problems"}
    scores = [values.mean(axis=1).round(12) for values in (first_SP, second_SP)]
    at, low, high = (improvement_of_pairs if shared else improvement)(*scores)
    row |= {"estimate": at, "mean": float(scores[0].mean()), "other_mean": float(scores[1].mean())}
    if min(seeds) < FEWEST_FOR_CHANCES:
        return row | _too_few(min(seeds), FEWEST_FOR_CHANCES)
    whose = "new seeds, each under both arms" if shared else "new seeds of both recipes"
    return row | {"low": low, "high": high, "holds_for": f"{whose}, on these problems"}


@standard_measure("over_seeds", needs=("trainings",), rollouts="final")
@stage(OverSeeds, version=4)
def look_over_seeds(*, rollouts: tuple[Rollouts, ...], seed: int = 0) -> pa.Table:
    """Interquartile mean and probability of improvement over the seeds of every arm."""
    return over_seeds_of(read_groups(rollouts), seed)

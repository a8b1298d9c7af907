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
from storage.sql import query
from tasks.domain.statistics.means import ONE_PROBLEM, SILENT, folded, holds_for
from tasks.domain.statistics.over_seeds import improvement, improvement_of_pairs, over_seeds_and_sources
from tasks.domain.statistics.seeded import by_seed, same_adapters
from tasks.measures.grouping import read_groups
from tasks.measures.slicing import counts_of
from tasks.measures.standard import standard_measure
from tasks.stage import stage

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
    span = query(
        "select arm, max(step) as step from groups group by arm having max(step) > 0 order by arm", groups=groups
    ).to_pylist()
    found: dict[tuple[str, str], np.ndarray] = {}
    adapters: dict[tuple[str, str], np.ndarray] = {}
    last = {row["arm"]: row["step"] for row in span}
    for arm, step, source in counts.places:
        if last.get(arm) == step:
            found[arm, source], adapters[arm, source] = _by_seed(counts.columns, counts.places[arm, step, source])
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


def _by_seed(columns: dict[str, np.ndarray], mine: slice) -> tuple[np.ndarray, np.ndarray]:
    """((S, clusters) accuracy of the problems that every seed was asked, the adapters)."""
    problem, cluster, adapter, size, correct = (
        columns[name][mine] for name in ("problem", "cluster", "adapter", "group_size", "num_correct")
    )
    found = by_seed(problem, adapter, np.column_stack([correct / size, cluster]))
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

"""Width: how many different things a problem's rollouts are, by every measure; and how measures go with one another,
with length and with accuracy, so that nobody mistakes one for the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import Embeddings, Partitions, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels
from tasks.domain.statistics.means import ADAPTERS, folded
from tasks.domain.statistics.rank_correlation import rank_correlations
from tasks.domain.statistics.seeded import by_seed
from tasks.embedded import with_vectors
from tasks.measures.grouping import clusters_of, in_classes
from tasks.measures.standard import standard_measure
from tasks.measures.width.looked_at import LookedAt
from tasks.measures.width.values import Series, problems_of, series_of, vocabulary_of
from tasks.stage import stage, store

COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum", "trace"]
Part = tuple[pa.Table, pa.Table]
#: What of a series is set beside others: its name and partition, and its mean_P over adapters, NaN where one lacks it.
Beside = tuple[dict[str, Any], np.ndarray]


class Widths(
    Ref,
    kind="widths",
    schema=nullable(
        "metric str, other str, partition str, other_partition str, basis str, window int, arm str, step int, k int",
        "estimate real, low real, high real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Width by every measure; with `other`, the rank correlation over problems of two of them."""


def widths_of(parts: Iterable[Part], vocabulary: Mapping[int, int], ks: Sequence[int]) -> pa.Table:
    """One row per measure, partition or window, basis (all rollouts, or the correct alone), policy and k; then one per
    two measures and policy, at the largest k that is no more than half a group.

    parts: rollouts of whole problems under one policy or several, and their vectors: see problems_of.
    vocabulary: of all of them.
    """
    several, above_one = list(series_of(sorted(vocabulary))), [k for k in ks if k > 1]
    policies: dict[tuple[str, int], LookedAt] = {}
    for rollouts, vectors in parts:
        for problem in problems_of(rollouts, vectors, vocabulary):
            key = problem.arm, problem.step
            if key not in policies:
                policies[key] = LookedAt(several, above_one, vocabulary)
            policies[key].add(problem)
    rows: list[dict[str, Any]] = []
    for (arm, step), seen in sorted(policies.items()):
        where = {"arm": arm, "step": step}
        shown = max((k for k in above_one if k <= max(seen.smallest / 2, 2)), default=None)
        alongside: list[Beside] = []
        for series in several:
            about = {"metric": series.measure.name, "partition": series.partition, "window": series.window}
            for k in above_one:
                value_PS, most, why = seen.values(series, k)
                row = about | where | {"basis": series.basis, "k": k}
                rows.append(row | summarised(series, seen, value_PS, most, why))
                if k == shown and series.basis == "all" and series.window in (None, min(vocabulary)) and not why:
                    alongside.append((about, _over_adapters(value_PS)))
        rows += [where | {"k": shown} | row for row in correlations(seen, alongside)]
    return pa.Table.from_pylist(rows, schema=Widths.schema)


def summarised(series: Series, seen: LookedAt, value_PS: np.ndarray, most: float, why: str | None) -> dict[str, Any]:
    """Mean over problems that every adapter has a value of, with the interval of a share of what could be."""
    if why:
        return {"n": 0, "reason": why}
    least, there_PS = series.measure.least, ~np.isnan(value_PS)
    kept_P = there_PS.any(axis=1)
    cluster_P = seen.cluster_P[kept_P]
    problem_N, adapter_N = np.nonzero(there_PS[kept_P])
    untrained = "" in seen.adapters
    share_N = (value_PS[there_PS] - least) / (most - least)
    found = by_seed(problem_N, adapter_N + (not untrained), share_N[:, None])
    shared = {"n": len(found.problem_P), "seeds": len(found.values_SPV) if found.trained else None}
    if not len(found.problem_P) or len(found.values_SPV) < len(seen.adapters):
        return shared | {"n": 0, "reason": INCOMPLETE}
    values_SCV = folded(found.values_SPV, cluster_P[found.problem_P])
    row = levels(values_SCV, found.trained, gradual=True)[0] | shared | {"clusters": values_SCV.shape[1]}
    for name in ("estimate", "low", "high"):
        row[name] = None if row[name] is None else least + row[name] * (most - least)
    return row


def correlations(seen: LookedAt, alongside: Sequence[Beside]) -> list[dict[str, Any]]:
    """Every two measures of one policy, and each with the mean length and the accuracy of its problems."""
    besides = (("length", seen.length_PS), ("accuracy", seen.accuracy_PS))
    means = [*alongside, *(({"metric": name}, _over_adapters(value_PS)) for name, value_PS in besides)]
    seeds = len(seen.adapters) if any(seen.adapters) else None
    there_MP = [~np.isnan(mean_P) for _, mean_P in means]
    on: dict[bytes, list[tuple[int, int]]] = {}
    for pair in combinations(range(len(means)), 2):
        on.setdefault((there_MP[pair[0]] & there_MP[pair[1]]).tobytes(), []).append(pair)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for problems, pairs in on.items():
        both_P = np.frombuffer(problems, bool)
        cluster_P = seen.cluster_P[both_P]
        shared = {"n": int(both_P.sum()), "clusters": len(set(cluster_P)), "seeds": seeds}
        told = rank_correlations([mean_P[both_P] for _, mean_P in means], pairs, cluster_P)
        for pair, one in zip(pairs, told, strict=True):
            intervals = {"estimate": one.estimate, "low": one.low, "high": one.high, "reason": one.reason}
            found[pair] = intervals | shared | {"holds_for": ADAPTERS if seeds else None}
    return [
        means[i][0]
        | {"other": means[j][0]["metric"], "other_partition": means[j][0].get("partition"), "basis": "all"}
        | found[i, j]
        for i, j in combinations(range(len(means)), 2)
    ]


def _over_adapters(value_PS: np.ndarray) -> np.ndarray:
    """mean_P; NaN where an adapter has none."""
    return np.array([fmean(of) for of in value_PS])


@standard_measure("widths", rollouts="final")
@stage(Widths, version=7)
def measure_widths(
    *,
    rollouts: tuple[Rollouts, ...],
    partitions: tuple[Partitions, ...],
    embeddings: tuple[Embeddings, ...],
    ks: tuple[int, ...],
) -> pa.Table:
    """Every measure of width of every policy, and their rank correlations over problems.

    partitions, embeddings: of each of the rollouts.
    """
    clusters = clusters_of(rollouts)
    traces = (t for ref in rollouts for part in store().parts(ref, ["trace"]) for t in part["trace"].to_pylist())
    of_each = zip(rollouts, partitions, embeddings, strict=True)
    return widths_of((part for refs in of_each for part in _parts(*refs, clusters)), vocabulary_of(traces), ks)


def _parts(rollouts: Rollouts, partitions: Partitions, embeddings: Embeddings, clusters: pa.Table) -> Iterator[Part]:
    def told() -> Iterator[pa.Table]:
        for part in in_classes(rollouts, partitions, COLUMNS):
            place = pc.index_in(part["problem_id"], clusters["problem_id"])  # pyright: ignore[reportAttributeAccessIssue]
            yield part.append_column("cluster", clusters["cluster"].take(place))

    return with_vectors(told(), embeddings)

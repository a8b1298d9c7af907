"""Width: how many different things a problem's rollouts are, by every measure; and how measures go with one another,
with length and with accuracy, so that nobody mistakes one for the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Embeddings, Partitions, Rollouts
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.sql import query
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels
from tasks.domain.statistics.means import ADAPTERS, folded
from tasks.domain.statistics.rank_correlation import rank_correlation
from tasks.domain.statistics.seeded import by_seed
from tasks.measures.grouping import with_clusters
from tasks.measures.groups import classed, together
from tasks.measures.standard import standard_measure
from tasks.measures.width.group import Group
from tasks.measures.width.values import Problem, Series, problems_of, series_of, view
from tasks.stage import stage, store

COLUMNS = ["problem_id", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum", "trace"]
VECTORS = ["problem_id", "arm", "step", "seed", "rollout", "window", "embedding"]
NONE = {
    "partition": "no problem has {k} {which}rollouts with a class",
    "vectors": "no problem has {k} {which}rollouts with a vector",
    "words": "no problem has {k} {which}traces of {window} words",
}
Values = dict[str, dict[str, float]]  # problem → adapter → value


class Widths(
    Ref,
    kind="widths",
    schema=nullable(
        "metric str, other str, partition str, other_partition str, basis str, window int, arm str, step int, k int",
        "estimate real, low real, high real, n big, clusters big, seeds int, holds_for str, reason str",
    ),
):
    """Width by every measure; with `other`, the rank correlation over problems of two of them."""


def widths_of(rollouts: pa.Table, vectors: pa.Table, ks: Sequence[int]) -> pa.Table:
    """One row per measure, partition or window, basis (all rollouts, or the correct alone), policy and k; then one per
    two measures and policy, at the largest k that is no more than half a group. rollouts, vectors: see problems_of."""
    problems, vocabulary = problems_of(rollouts, vectors)
    policies: dict[tuple[str, int], list[Problem]] = {}
    for problem in problems:
        policies.setdefault((problem.arm, problem.step), []).append(problem)
    rows: list[dict[str, Any]] = []
    for (arm, step), mine in sorted(policies.items()):
        where = {"arm": arm, "step": step}
        several = [k for k in ks if k > 1]
        half = min(len(p.group) for p in mine) / 2
        shown = max((k for k in several if k <= max(half, 2)), default=None)
        beside: list[tuple[dict[str, Any], Values]] = []
        for series in series_of(sorted(vocabulary)):
            about = {"metric": series.measure.name, "partition": series.partition, "window": series.window}
            views = [(problem, view(problem, series, vocabulary)) for problem in mine]
            for k in several:
                values, most, why = measured(series, k, views)
                row = about | where | {"basis": series.basis, "k": k}
                rows.append(row | summarised(series, mine, values, most, why))
                if k == shown and series.basis == "all" and series.window in (None, min(vocabulary)) and not why:
                    beside.append((about, values))
        rows += [where | {"k": shown} | row for row in correlations(mine, beside)]
    return pa.Table.from_pylist(rows, schema=Widths.schema)


def measured(series: Series, k: int, views: Sequence[tuple[Problem, Group]]) -> tuple[Values, float, str | None]:
    """(values of the problems with k rollouts to look at, what they could be at most, why none is defined)."""
    values: Values = {}
    most = 0.0
    for problem, group in views:
        if len(group) < k:
            continue
        found = series.measure.value(group, k)
        if isinstance(found, str):
            return {}, most, found
        if found is not None:
            values.setdefault(problem.problem_id, {})[problem.adapter] = found
            most = max(most, series.measure.most(group, k))
    if values:
        return values, most, None
    which = "correct " if series.basis == "correct" else ""
    return values, most, NONE[series.measure.of].format(k=k, which=which, window=series.window)


def summarised(
    series: Series, problems: Sequence[Problem], values: Values, most: float, why: str | None
) -> dict[str, Any]:
    """Mean over problems that every adapter has a value of, with the interval of a share of what could be."""
    if why:
        return {"n": 0, "reason": why}
    least, clusters = series.measure.least, {p.problem_id: p.cluster for p in problems}
    code = {name: place for place, name in enumerate(sorted(set(clusters.values())))}
    adapters = {name: place + bool(name) for place, name in enumerate(sorted({p.adapter for p in problems}))}
    cells = [(i, a, v) for i, problem in enumerate(sorted(values)) for a, v in values[problem].items()]
    cluster_P = np.array([code[clusters[problem]] for problem in sorted(values)])
    problem_N = np.array([i for i, _, _ in cells])
    share_N = (np.array([v for _, _, v in cells]) - least) / (most - least)
    found = by_seed(problem_N, np.array([adapters[a] for _, a, _ in cells]), share_N[:, None])
    shared = {"n": len(found.problem_P), "seeds": len(found.values_SPV) if found.trained else None}
    if not len(found.problem_P) or len(found.values_SPV) < len(adapters):
        return shared | {"n": 0, "reason": INCOMPLETE}
    values_SCV = folded(found.values_SPV, cluster_P[found.problem_P])
    row = levels(values_SCV, found.trained, gradual=True)[0] | shared | {"clusters": values_SCV.shape[1]}
    for name in ("estimate", "low", "high"):
        row[name] = None if row[name] is None else least + row[name] * (most - least)
    return row


def correlations(problems: Sequence[Problem], beside: Sequence[tuple[dict[str, Any], Values]]) -> list[dict[str, Any]]:
    """Every two measures of one policy, and each with the mean length and the accuracy of its problems."""
    length: Values = {}
    accuracy: Values = {}
    for p in problems:
        length.setdefault(p.problem_id, {})[p.adapter] = float(p.group.num_tokens_N.mean())
        accuracy.setdefault(p.problem_id, {})[p.adapter] = float(p.group.correct_N.mean())
    beside = [*beside, ({"metric": "length"}, length), ({"metric": "accuracy"}, accuracy)]
    means = [(about, {p: (len(of), fmean(of.values())) for p, of in values.items()}) for about, values in beside]
    clusters = {p.problem_id: p.cluster for p in problems}
    adapters = sorted({p.adapter for p in problems})
    rows = []
    for (one, x), (other, y) in combinations(means, 2):
        both = sorted(problem for problem in x.keys() & y.keys() if x[problem][0] == y[problem][0] == len(adapters))
        x_P, y_P = (np.array([of[problem][1] for problem in both]) for of in (x, y))
        cluster_P = np.array([clusters[problem] for problem in both])
        found = rank_correlation(x_P, y_P, cluster_P)
        rows.append(
            one
            | {"other": other["metric"], "other_partition": other.get("partition"), "basis": "all"}
            | {"estimate": found.estimate, "low": found.low, "high": found.high, "reason": found.reason}
            | {"n": len(both), "clusters": len(set(cluster_P)), "seeds": len(adapters) if any(adapters) else None}
            | {"holds_for": ADAPTERS if any(adapters) else None}
        )
    return rows


@standard_measure("widths", rollouts="final")
@stage(Widths, version=4)
def measure_widths(
    *,
    rollouts: tuple[Rollouts, ...],
    partitions: tuple[Partitions, ...],
    embeddings: tuple[Embeddings, ...],
    ks: tuple[int, ...],
) -> pa.Table:
    """Every measure of width of every policy, and their rank correlations over problems."""
    rows = with_clusters(together([store().read(ref, COLUMNS) for ref in rollouts]), rollouts)
    vectors = query(
        """from v where "window" = 'whole'""", v=pa.concat_tables([store().read(ref, VECTORS) for ref in embeddings])
    )
    return widths_of(classed(rows, [store().read(ref) for ref in partitions]), vectors, ks)

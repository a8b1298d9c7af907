"""Majority voting and selection: maj@k and best-of-k from the same rollouts that pass@k uses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Partitions, Rollouts, Votes
from storage.sql import query
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels
from tasks.domain.statistics.means import folded
from tasks.domain.statistics.voting import best_chance, majority_chance
from tasks.measures.grouping import with_clusters
from tasks.measures.groups import classed, together
from tasks.measures.standard import standard_measure
from tasks.stage import PART_ROWS, stage, store

COLUMNS = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum"]
METRICS = ("maj@k", "shortest@k", "likeliest@k")


def votes_of(rollouts: pa.Table, ks: Sequence[int], seed: int, subsets: int = 500) -> pa.Table:
    """One row per metric, (arm, step), source and k, over problems.

    metric: `maj@k`, the most frequent `answer_class` of k rollouts is right (ties share; no answer casts no vote);
    best-of-k by two selectors that cost nothing: `shortest@k`, the shortest of k rollouts that gave an answer is
    right; `likeliest@k`, that of the highest mean log-probability a token. All over the k-subsets of a group, or over
    `subsets` random ones where there are more; pass@k, best-of-k with a perfect selector, bounds them from above.
    Null, with the reason, where a group has fewer than k rollouts, or one of them no log-probability.
    """
    cluster = "any_value(coalesce(cluster, problem_id))" if "cluster" in rollouts.column_names else "problem_id"
    groups = query(
        f"""
        select arm, step, source, problem_id, coalesce(adapter, '') as adapter, seed, {cluster} as cluster,
               list(answer_class order by rollout) as answers, list(correct order by rollout) as correct,
               list(-num_tokens::double order by rollout) as shortness,
               list(logprob_sum / greatest(num_tokens, 1) order by rollout) as likelihood
        from rollouts group by all order by arm, step, source, problem_id, adapter, seed
        """,
        rollouts=rollouts,
    )
    rng = np.random.default_rng(seed)
    values: dict[tuple[str, str, int, int], dict[tuple[str, str, str], dict[str, list[float | str]]]] = {}
    for g in (group for part in groups.to_batches(PART_ROWS) for group in part.to_pylist()):
        order_SN = rng.random((subsets, len(g["answers"]))).argsort(axis=1)
        for k in ks:
            for metric, found in _judged(g, k, _subsets(order_SN, k)).items():
                place = values.setdefault((metric, g["arm"], g["step"], k), {})
                problem = place.setdefault((g["source"], g["problem_id"], g["cluster"]), {})
                problem.setdefault(g["adapter"], []).append(found)
    rows: list[dict[str, Any]] = []
    for (metric, arm, step, k), problems in sorted(values.items()):
        for source in ("all", *sorted({s for s, *_ in problems})):
            part = [(cluster, v) for (s, _, cluster), v in problems.items() if source in ("all", s)]
            row = {"metric": metric, "arm": arm, "step": step, "source": source, "k": k}
            rows.append(row | _averaged(part))
    return pa.Table.from_pylist(rows, schema=Votes.schema)


def _subsets(order_SN: np.ndarray, k: int) -> np.ndarray:
    """All k-subsets of the group where they are no more than the random ones, else those."""
    drawn, n = order_SN.shape
    return np.array(list(combinations(range(n), k)), np.int64) if k <= n and comb(n, k) <= drawn else order_SN[:, :k]


def _judged(group: dict[str, Any], k: int, chosen: np.ndarray) -> dict[str, float | str]:
    """Metric → chance that it is right for this group, or why that is undefined. chosen: (S, k) subsets."""
    answers, correct = group["answers"], group["correct"]
    if k > len(answers):
        return dict.fromkeys(METRICS, f"a problem has fewer than k = {k} rollouts")
    found: dict[str, float | str] = {
        "maj@k": majority_chance(answers, correct, chosen),
        "shortest@k": best_chance(answers, correct, group["shortness"], chosen),
        "likeliest@k": "a rollout has no log-probability",
    }
    if all(v is not None and isfinite(v) for v in group["likelihood"]):
        found["likeliest@k"] = best_chance(answers, correct, group["likelihood"], chosen)
    return found


def _averaged(problems: Sequence[tuple[str, dict[str, list[float | str]]]]) -> dict[str, Any]:
    """Mean over problems that every adapter was asked, with its interval; or the reason why there is none. problems:
    each with its cluster of near-duplicates."""
    adapters = sorted({adapter for _, problem in problems for adapter in problem})
    whole = [(cluster, problem) for cluster, problem in problems if len(problem) == len(adapters)]
    row: dict[str, Any] = {"n": len(whole), "seeds": len(adapters)}
    undefined = next((v for _, p in whole for found in p.values() for v in found if isinstance(v, str)), None)
    if undefined or not whole:
        return row | {"reason": undefined or INCOMPLETE}
    values = [[np.mean(problem[adapter]) for _, problem in whole] for adapter in adapters]  # type: ignore[arg-type]
    values_SCV = folded(np.array(values, np.float64)[:, :, None], np.array([cluster for cluster, _ in whole]))
    return row | {"clusters": values_SCV.shape[1]} | levels(values_SCV, any(adapters))[0]


@standard_measure("votes", rollouts="final")
@stage(Votes, version=10)
def measure_votes(
    *, rollouts: tuple[Rollouts, ...], partitions: tuple[Partitions, ...], ks: tuple[int, ...], seed: int = 0
) -> pa.Table:
    """maj@k and best-of-k of every (arm, step), per source and for all of them."""
    rows = with_clusters(together([store().read(ref, COLUMNS) for ref in rollouts]), rollouts)
    return votes_of(classed(rows, [store().read(ref) for ref in partitions]), ks, seed)

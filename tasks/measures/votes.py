"""Majority voting and selection: maj@k and best-of-k from the same rollouts that pass@k uses."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Partitions, Rollouts, Votes
from storage.sql import query
from tasks.domain.statistics.curves_of_k import interval
from tasks.domain.statistics.estimators import best_chance, majority_chance, subsets
from tasks.measures.groups import clusters_of, in_classes
from tasks.measures.standard import standard_measure
from tasks.stage import stage

COLUMNS = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum"]
#: Of a group that are gone through; of more, so many drawn at random.
SUBSETS = 500
METRICS = ("maj@k", "shortest@k", "likeliest@k")


def votes_of(parts: Iterable[pa.Table], ks: Sequence[int], seed: int) -> pa.Table:
    """One row per metric, (arm, step), source and k, over problems.

    metric: `maj@k`, the most frequent `answer_class` of k rollouts is right (ties share; no answer casts no vote);
    best-of-k by two selectors that cost nothing: `shortest@k`, the shortest of k rollouts that gave an answer is
    right; `likeliest@k`, that of the highest mean log-probability a token. All over the k-subsets of a group, or over
    SUBSETS random ones where there are more, the same of all groups of one size; pass@k, best-of-k with a perfect
    selector, bounds them from above. Null, with the reason, where a group has fewer than k rollouts, or one of them no
    log-probability.

    parts: rollouts of whole groups. cluster: of near-duplicates, where a part has such a column.
    """
    policies: dict[tuple[str, int], Judged] = {}
    for group in (group for part in parts for group in _groups(part)):
        key = group["arm"], group["step"]
        if key not in policies:
            policies[key] = Judged(ks)
        found = [_judged(group, k, subsets(len(group["answers"]), k, SUBSETS, seed)) for k in ks]
        policies[key].add(group, [values[metric] for metric in METRICS for values in found])
    rows: list[dict[str, Any]] = []
    for (arm, step), judged in sorted(policies.items()):
        for (metric, k), source, row in judged.rows():
            rows.append({"metric": metric, "arm": arm, "step": step, "source": source, "k": k} | row)
    rows.sort(key=lambda row: (row["metric"], row["arm"], row["step"], row["k"]))
    return pa.Table.from_pylist(rows, schema=Votes.schema)


def _groups(rollouts: pa.Table) -> Iterator[dict[str, Any]]:
    cluster = "any_value(coalesce(cluster, problem_id))" if "cluster" in rollouts.column_names else "problem_id"
    yield from query(
        f"""
        select arm, step, source, problem_id, coalesce(adapter, '') as adapter, seed, {cluster} as cluster,
               list(answer_class order by rollout) as answers, list(correct order by rollout) as correct,
               list(-num_tokens::double order by rollout) as shortness,
               list(logprob_sum / greatest(num_tokens, 1) order by rollout) as likelihood
        from rollouts group by all order by arm, step, source, problem_id, adapter, seed
        """,
        rollouts=rollouts,
    ).to_pylist()


def _judged(group: dict[str, Any], k: int, chosen_SK: np.ndarray) -> dict[str, float | str]:
    """Metric → chance that it is right for this group, or why that is undefined."""
    answers, correct = group["answers"], group["correct"]
    if k > len(answers):
        return dict.fromkeys(METRICS, f"a problem has fewer than k = {k} rollouts")
    found: dict[str, float | str] = {
        "maj@k": majority_chance(answers, correct, chosen_SK),
        "shortest@k": best_chance(answers, correct, group["shortness"], chosen_SK),
        "likeliest@k": "a rollout has no log-probability",
    }
    if all(v is not None and isfinite(v) for v in group["likelihood"]):
        found["likeliest@k"] = best_chance(answers, correct, group["likelihood"], chosen_SK)
    return found


class Judged:
    """The groups of one policy after they were judged: numbers alone, so that no two parts' rows are held."""

    def __init__(self, ks: Sequence[int]) -> None:
        self._columns = [(metric, k) for metric in METRICS for k in ks]
        self._codes: dict[str, dict[str, int]] = {name: {} for name in ("problem_id", "source", "cluster", "adapter")}
        self._code_N = {name: array("q") for name in self._codes}
        self._value_N = array("d")
        self._why: dict[tuple[int, str], str] = {}

    def add(self, group: dict[str, Any], values: Sequence[float | str]) -> None:
        for name, codes in self._codes.items():
            self._code_N[name].append(codes.setdefault(group[name], len(codes)))
        for column, value in enumerate(values):
            self._value_N.append(np.nan if isinstance(value, str) else value)
            if isinstance(value, str):
                self._why.setdefault((column, group["source"]), value)

    def rows(self) -> Iterator[tuple[tuple[str, int], str, dict[str, Any]]]:
        """((metric, k), source or `all`, mean over the problems that every adapter was asked, with its interval; or the
        reason why there is none)."""
        code_N = {name: self._by_name(name) for name in self._codes}
        adapter_N = code_N["adapter"] + ("" not in self._codes["adapter"])
        value_NV = np.frombuffer(self._value_N).reshape(-1, len(self._columns))
        for place, source in enumerate(("all", *sorted(self._codes["source"]))):
            kept_N = slice(None) if source == "all" else code_N["source"] == place - 1
            problem_N, of_N, cluster_N = (c[kept_N] for c in (code_N["problem_id"], adapter_N, code_N["cluster"]))
            for column, name in enumerate(self._columns):
                [row] = interval(problem_N, of_N, cluster_N, value_NV[kept_N][:, [column]])
                row |= {"seeds": row["seeds"] or 1}
                why = next((w for (of, s), w in self._why.items() if of == column and source in ("all", s)), None)
                yield name, source, {k: row[k] for k in ("n", "seeds")} | {"reason": why} if why else row

    def _by_name(self, column: str) -> np.ndarray:
        """Codes in the order of names, so that sums do not hang on which part came first."""
        codes = self._codes[column]
        rank_C = np.empty(len(codes), np.int64)
        rank_C[[codes[name] for name in sorted(codes)]] = np.arange(len(codes))
        return rank_C[np.frombuffer(self._code_N[column], np.int64)]


@standard_measure("votes", rollouts="final")
@stage(Votes, version=11)
def measure_votes(
    *, rollouts: tuple[Rollouts, ...], partitions: tuple[Partitions, ...], ks: tuple[int, ...], seed: int = 0
) -> pa.Table:
    """maj@k and best-of-k of every (arm, step), per source and for all of them. partitions: of each of the rollouts."""
    clusters = clusters_of(rollouts)
    pairs = zip(rollouts, partitions, strict=True)
    parts = (part.join(clusters, "problem_id") for refs in pairs for part in in_classes(*refs, COLUMNS))
    return votes_of(parts, ks, seed)

"""Majority voting and selection: maj@k and best-of-k from the same rollouts that pass@k uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Partitions, Rollouts, Votes
from storage.sql import query
from tasks.domain.statistics.estimators import best_chance, majority_chance, subsets
from tasks.measures.groups import Row, counts_of, estimates, in_classes
from tasks.measures.standard import standard_measure
from tasks.stage import stage

COLUMNS = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct", "num_tokens", "logprob_sum"]
#: The largest number of k-subsets of a group that is enumerated; larger sets are sampled at random.
SUBSETS = 500
#: Metric → reason if it is missing.
METRICS = {
    "likeliest@k": "a problem has fewer than k = {} rollouts, or one without a log-probability",
    "maj@k": "a problem has fewer than k = {} rollouts",
    "shortest@k": "a problem has fewer than k = {} rollouts",
}


def votes_of(parts: Iterable[pa.Table], ks: Sequence[int], seed: int) -> pa.Table:
    """Return one row per metric, (arm, step), source and k, over problems.

    metric: `maj@k`, the most frequent `answer_class` of k rollouts is right (ties share; no answer casts no vote);
    `shortest@k`, the shortest of k rollouts that gave an answer is right; `likeliest@k`, the rollout with the highest
    mean log-probability per token is right. Averaged over the k-subsets of a group, or over SUBSETS random ones if
    there are more (the same for all groups of one size). pass@k, best-of-k with a perfect selector, is the upper bound.
    None, with a reason, if a group has fewer than k rollouts or lacks a log-probability. parts: rollouts of whole
    groups; an optional column `cluster` marks near-duplicates.
    """
    voted = pa.concat_tables([_voted(part, ks, seed) for part in parts])
    heads = {
        f"{metric} {k}": {"metric": metric, "k": k, "why": why.format(k)} for metric, why in METRICS.items() for k in ks
    }
    counts, rows = counts_of(voted), list[Row]()
    for arm, step, source in counts.places:
        about = {"arm": arm, "step": step, "source": source}
        rows += [about | row for row in estimates(counts.at((arm, step, source)), heads)]
    return pa.Table.from_pylist(rows, schema=Votes.schema)


def _voted(rollouts: pa.Table, ks: Sequence[int], seed: int) -> pa.Table:
    """Return one row per group, with one column per metric and k: the chance that it is right, or null if undefined."""
    cluster = "any_value(coalesce(cluster, problem_id))" if "cluster" in rollouts.column_names else "problem_id"
    groups = query(
        f"""
        select arm, step, source, problem_id, coalesce(adapter, '') as adapter, seed, {cluster} as cluster,
               list(answer_class order by rollout) as answers, list(correct order by rollout) as correct,
               list(-num_tokens::double order by rollout) as shortness,
               list(coalesce(logprob_sum, 'nan') / greatest(num_tokens, 1) order by rollout) as likelihood
        from rollouts group by all
        """,
        rollouts=rollouts,
    )
    values: dict[str, list[float | None]] = {f"{metric} {k}": [] for metric in METRICS for k in ks}
    for group in groups.to_pylist():
        given = group["answers"], group["correct"]
        likely = np.isfinite(group["likelihood"]).all()
        for k in ks:
            chosen_SK = subsets(len(group["answers"]), k, SUBSETS, seed)
            enough = len(chosen_SK) > 0
            values[f"maj@k {k}"].append(majority_chance(*given, chosen_SK) if enough else None)
            values[f"shortest@k {k}"].append(best_chance(*given, group["shortness"], chosen_SK) if enough else None)
            values[f"likeliest@k {k}"].append(
                best_chance(*given, group["likelihood"], chosen_SK) if enough and likely else None
            )
    kept = groups.drop(["answers", "correct", "shortness", "likelihood"])
    for name, column in values.items():
        kept = kept.append_column(name, pa.array(column, pa.float64()))
    return kept


@standard_measure("votes", rollouts="final")
@stage(Votes, version=12)
def measure_votes(
    *, rollouts: tuple[Rollouts, ...], partitions: tuple[Partitions, ...], ks: tuple[int, ...], seed: int = 0
) -> pa.Table:
    """Return maj@k and best-of-k of every (arm, step), per source and overall. partitions: one per rollouts."""
    pairs = zip(rollouts, partitions, strict=True)
    return votes_of((part for refs in pairs for part in in_classes(*refs, COLUMNS)), ks, seed)

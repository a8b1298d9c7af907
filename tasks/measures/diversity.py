"""Diversity: how far apart the traces of one problem lie, with and without an encoder."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.kinds import (
    AnswerDiversity,
    Diversity,
    DiversityCeilings,
    DiversityComparison,
    Embeddings,
    Partitions,
    Rollouts,
)
from storage.artifacts.ref import Ref
from tasks.domain.statistics.rewording import REWORDED
from tasks.measures.ceilings import ceilings_of_parts
from tasks.measures.comparisons import compare_columns
from tasks.measures.diversity_measures import GROUP, answers_of, diversity_of
from tasks.measures.grouping import in_classes, with_clusters
from tasks.measures.standard import standard_measure
from tasks.origins import sampled_with
from tasks.stage import beside, stage, store


@stage(Diversity, version=4)
def measure_diversity(*, embeddings: Embeddings) -> pa.Table:
    """Mean pairwise distance per problem, with length, accuracy and encoder coverage beside it."""
    parts = store().groups(embeddings, ["window", "problem_id"])
    rows = pa.concat_tables([Diversity.schema.empty_table(), *map(diversity_of, parts)])
    return rows.sort_by([(key, "ascending") for key in GROUP])


@stage(AnswerDiversity, version=4)
def measure_answers(*, rollouts: Rollouts, partitions: Partitions) -> pa.Table:
    """How the answers of each problem's rollouts differ; needs no encoder."""
    columns = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct"]
    parts = [answers_of(part) for part in in_classes(rollouts, partitions, columns)]
    whole = pa.concat_tables([AnswerDiversity.schema.empty_table(), *parts])
    return whole.sort_by([(name, "ascending") for name in ("arm", "step", "seed", "source", "problem_id")])


@stage(DiversityComparison, version=16)
def compare_diversity(*, diversities: tuple[Diversity, ...], draws: int = 10_000, seed: int = 0) -> pa.Table:
    """Every two policies, paired by problem, and by seed where both are the same adapters. No rows where the study asks
    for no diversity."""
    if not diversities:
        return DiversityComparison.schema.empty_table()
    tables = [_with_adapter(with_clusters(store().read(ref), [ref]), ref) for ref in diversities]
    return compare_columns(tables, ("diversity", "diversity_correct"), draws, seed).cast(DiversityComparison.schema)


def _with_adapter(rows: pa.Table, measured: Ref) -> pa.Table:
    """With the training whose adapter was sampled, as far as it is known: else an artifact is a training of its own."""
    policy = (sampled_with(measured) or {}).get("policy")
    adapter = policy.get("adapter") if isinstance(policy, dict) else None
    return rows.append_column("adapter", pa.array([str(adapter or measured)] * rows.num_rows, pa.string()))


@standard_measure("ceilings")
@stage(DiversityCeilings, version=4)
def measure_ceilings(*, embeddings: tuple[Embeddings, ...]) -> pa.Table:
    """Distance within problems between its floor, a trace in other words, and its ceiling, shuffled problems."""
    return pa.concat_tables([_ceilings(ref) for ref in embeddings])


def _ceilings(ref: Embeddings) -> pa.Table:
    """Reworded traces come after all others: they and those that they are of are read on their own."""
    at, in_other_words = ["window", "problem_id"], pc.field("window") == REWORDED
    known = set(store().keys(ref, at).filter(in_other_words)["problem_id"].unique().to_pylist())
    asked = pc.field("problem_id").isin(pa.array(sorted(known), pa.string())) & (pc.field("window") == "whole")
    whole = (part.filter(asked) for part in store().groups(ref, at))
    again = (part for groups in store().groups(ref, at) if (part := groups.filter(in_other_words)).num_rows)
    return ceilings_of_parts(store().groups(ref, at), beside(again, whole, known, Embeddings.schema))

"""Diversity: how far apart the traces of one problem lie, with and without an encoder."""

from __future__ import annotations

import pyarrow as pa

from tasks.measures.ceilings import ceilings_of
from tasks.measures.comparisons import COMPARISON, compare_columns
from tasks.measures.diversity_measures import answers_of, diversity_of
from tasks.stage import Ref, stage, store


@stage("diversity", version=1)
def measure_diversity(embeddings: Ref) -> pa.Table:
    """Mean pairwise distance per problem, with length, accuracy and encoder coverage beside it."""
    return diversity_of(store().read(embeddings))


@stage("answer_diversity", version=1)
def measure_answers(rollouts: Ref) -> pa.Table:
    """How the answers of each problem's rollouts differ; needs no encoder."""
    columns = ["problem_id", "source", "arm", "step", "seed", "canonical", "correct"]
    return answers_of(store().read(rollouts, columns))


@stage("diversity_comparison", version=3)
def compare_diversity(diversities: tuple[Ref, ...], draws: int = 10_000, seed: int = 0) -> pa.Table:
    """Every two policies, paired by problem. Several artifacts of one (arm, step) are its replicates."""
    tables = [store().read(ref) for ref in diversities]
    return compare_columns(tables, ("diversity", "diversity_correct"), draws, seed).cast(COMPARISON)


@stage("diversity_ceilings", version=2)
def measure_ceilings(embeddings: tuple[Ref, ...]) -> pa.Table:
    """Distance within problems between its floor, a trace in other words, and its ceiling, shuffled problems."""
    return pa.concat_tables([ceilings_of(store().read(ref)) for ref in embeddings])

"""What a study has, by the names under which measures take it, queries read it and recipes keep it."""

from __future__ import annotations

from dataclasses import dataclass

from storage.artifacts.kinds import (
    AnswerDiversity,
    Bands,
    Diversity,
    Embeddings,
    Partitions,
    Pool,
    Rollouts,
    Splits,
    Training,
)
from storage.artifacts.manifest import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Group):
    """Rows of every arm, which a report reads too. Any tuple may be empty.

    screenings, bands: of every arm. trainings: of every arm and seed. evaluations: held-out rollouts of the curve;
    final: of the base and of the last adapter, with more rollouts each, and their diversities and answers; sliced: all
    rollouts on benchmarks.
    """

    screenings: tuple[Rollouts, ...]
    bands: tuple[Bands, ...]
    trainings: tuple[Training, ...]
    evaluations: tuple[Rollouts, ...]
    final: tuple[Rollouts, ...]
    diversities: tuple[Diversity, ...]
    answers: tuple[AnswerDiversity, ...] = ()
    sliced: tuple[Rollouts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Available(Evidence):
    """What a standard measure may take, by the names of its arguments.

    partitions, embeddings: of final. deep: the same policies with as many rollouts as the asymptote asks for. arms:
    their names, in order. ks: as in pass@k.
    """

    pool: Pool
    splits: Splits
    partitions: tuple[Partitions, ...]
    deep: tuple[Rollouts, ...]
    embeddings: tuple[Embeddings, ...]
    arms: tuple[str, ...]
    ks: tuple[int, ...]
    train_group_size: int

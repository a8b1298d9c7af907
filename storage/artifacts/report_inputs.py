"""The inputs of a report, by the names that measures and queries use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import get_args, get_type_hints

from storage.artifacts.manifest import Group
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import (
    AnswerDiversity,
    Audit,
    BandCrosstab,
    Bands,
    Benchmark,
    Calibrations,
    Curves,
    Diversity,
    DiversityComparison,
    GainDifferences,
    PassAtK,
    PassAtKContrasts,
    Pool,
    Rollouts,
    Searches,
    Splits,
    Training,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems(Group):
    """The problems of a study. benchmarks: the problems of each benchmark."""

    pool: Pool
    splits: Splits
    benchmarks: tuple[Benchmark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Group):
    """Artifacts of every arm that the report reads beside its tables. Each of these tuples may be empty.

    screenings, bands: one per arm. trainings: one per arm and seed. evaluations: held-out rollouts of the curve; final:
    rollouts of the base and of the last adapter, more per problem, with their diversities and answers; sliced: all
    rollouts on benchmarks; calibrations: thresholds of the partitions; searches: of the policies in `final`, one per
    method.
    """

    screenings: tuple[Rollouts, ...]
    bands: tuple[Bands, ...]
    trainings: tuple[Training, ...]
    evaluations: tuple[Rollouts, ...]
    final: tuple[Rollouts, ...]
    diversities: tuple[Diversity, ...]
    answers: tuple[AnswerDiversity, ...] = ()
    sliced: tuple[Rollouts, ...] = ()
    calibrations: tuple[Calibrations, ...] = ()
    searches: tuple[Searches, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Group):
    """Comparisons of arms. The named fields are read by findings and summary; slices, slice_contrasts: pass@k, one
    artifact per benchmark. standard: tables that only figures read, by the names of tasks/measures/standard.py."""

    crosstab: BandCrosstab
    curves: Curves
    diversity: DiversityComparison
    passk: PassAtK
    audit: Audit
    gain_differences: GainDifferences | None = None
    contrasts: PassAtKContrasts | None = None
    slices: tuple[PassAtK, ...] = ()
    slice_contrasts: tuple[PassAtKContrasts, ...] = ()
    standard: Mapping[str, Ref] = field(default_factory=dict)


def _kind(hint: object) -> type[Ref] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Ref) and hint is not Ref else None


_HINTS = {f.name: get_type_hints(group)[f.name] for group in (Problems, Evidence, Tables) for f in fields(group)}
#: Inputs that every report has, with their kind.
ALWAYS = {name: kind for name, hint in _HINTS.items() if (kind := _kind(hint))}
#: Inputs of which a report may have none or several, with their kind.
SOMETIMES = {name: kind for name, hint in _HINTS.items() for part in get_args(hint) if (kind := _kind(part))}
#: Standard measures that a study requests by a separate field, because they need more rollouts.
ON_REQUEST = frozenset({"asymptotes", "objectives", "search_contrasts", "search_curves"})
#: Artifacts and standard measures that need embeddings; a study that chooses none of these embeds nothing.
FROM_EMBEDDINGS = frozenset({"diversity", "ceilings", "chain", "widths"})

"""What a report is made from, by the names under which measures take it, queries read it and recipes keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import get_args, get_type_hints

from storage.artifacts.kinds.experiment import Bands, Benchmark, Calibrations, Pool, Rollouts, Splits, Training
from storage.artifacts.kinds.measures import (
    AnswerDiversity,
    Audit,
    BandCrosstab,
    Curves,
    Diversity,
    DiversityComparison,
    GainDifferences,
    PassAtK,
    PassAtKContrasts,
)
from storage.artifacts.kinds.searches import Searches
from storage.artifacts.manifest import Group
from storage.artifacts.ref import Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems(Group):
    """benchmarks: what each benchmark asks."""

    pool: Pool
    splits: Splits
    benchmarks: tuple[Benchmark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Group):
    """Rows of every arm, which a report reads too. Any tuple may be empty.

    screenings, bands: of every arm. trainings: of every arm and seed. evaluations: held-out rollouts of the curve;
    final: of the base and of the last adapter, with more rollouts each, and their diversities and answers; sliced: all
    rollouts on benchmarks; calibrations: of the partitions; searches: of the same policies as final, one a method.
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
    """What compares the arms. Findings and the summary read the fields that are named here; slices, slice_contrasts:
    pass@k, one artifact a benchmark. standard: what only figures read, by the names of tasks/measures/standard.py."""

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
#: Name → kind of what every report has.
ALWAYS = {name: kind for name, hint in _HINTS.items() if (kind := _kind(hint))}
#: Name → kind of what a report may have none of, or several.
SOMETIMES = {name: kind for name, hint in _HINTS.items() for part in get_args(hint) if (kind := _kind(part))}
#: Standard measures of what a study asks for, and pays for, by a field of its own.
ASKED_FOR = frozenset({"asymptotes", "objectives", "search_contrasts", "search_curves"})
#: What is made from embeddings, and standard measures that need them: a study that chooses measures and none of these
#: embeds nothing.
FROM_EMBEDDINGS = frozenset({"diversity", "ceilings", "chain", "widths"})

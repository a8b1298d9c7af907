"""What a report is made from: these three groups and tasks.evidence.Evidence. Each field stands in the recipe, and in
the queries, by its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from storage.artifacts.kinds import (
    Audit,
    BandCrosstab,
    Benchmark,
    Curves,
    DiversityComparison,
    Gains,
    PassAtK,
    PassAtKContrasts,
    Pool,
    Splits,
)
from storage.artifacts.manifest import Group
from storage.artifacts.ref import Ref
from storage.reading.figures import FIGURES, check_sources
from tasks.evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(Group):
    """What was asked. arms: in the order in which everything lists and colours them. model: its name, a label."""

    profile: str
    purpose: str
    question: str
    model: str = field(compare=False)
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems(Group):
    """benchmarks: what each benchmark asks."""

    pool: Pool
    splits: Splits
    benchmarks: tuple[Benchmark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Group):
    """What compares the arms. Findings and the summary read the fields that are named here; slices, slice_contrasts:
    pass@k, one artifact a benchmark. standard: what only figures read, by the names of tasks/measures/standard.py."""

    crosstab: BandCrosstab
    curves: Curves
    diversity: DiversityComparison
    passk: PassAtK
    audit: Audit
    gains: Gains | None = None
    contrasts: PassAtKContrasts | None = None
    slices: tuple[PassAtK, ...] = ()
    slice_contrasts: tuple[PassAtKContrasts, ...] = ()
    standard: Mapping[str, Ref] = field(default_factory=dict)


def check_figures(measures: Iterable[str]) -> None:
    """measures: names of the standard ones. Errors: UserError for a figure of neither one nor a field of a report."""
    own = {f.name for group in (Problems, Evidence, Tables) for f in fields(group)}
    check_sources(FIGURES.values(), own - {"standard"} | set(measures))

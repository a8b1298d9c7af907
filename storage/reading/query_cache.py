"""The reports of a store, and named queries over them. Results are cached until a file changes."""

import atexit
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from storage.artifacts.fingerprint import restored
from storage.artifacts.manifest import Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.reading import catalog
from storage.reading.figures import chosen_measures
from storage.reading.views import Views, helper_tables, inputs_of
from storage.records.runs import all_runs, rarest_first
from storage.sql import named, query

#: Former names of report inputs.
RENAMED_INPUTS = {"gains": "gain_differences"}


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """Arguments of the stage that makes reports. arms: in the order of their colours. title: that of a user's study.
    changes: differences from the base profile. settings: the whole study as TOML."""

    profile: str
    arms: tuple[str, ...]
    title: str = ""
    changes: tuple[str, ...] = ()
    settings: str = ""
    model: str = ""


def report_arguments(recipe: Recipe) -> ReportArguments:
    """Return the arguments of a report. Raise UserError for a report of another version of the stage."""
    return restored(ReportArguments, recipe.arguments)


def report_inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Return the inputs of a report, by their present names."""
    return {RENAMED_INPUTS.get(name, name): refs for name, refs in recipe.inputs.items()}


@dataclass(frozen=True, slots=True)
class Report:
    """One report of the store. profile: the study's name. arms: in the order of their colours. changed: differences
    from the base profile, ordered by `rarest_first`. measures: the selected ones; empty means all."""

    ref: str
    profile: str
    created: str
    arms: tuple[str, ...]
    changed: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        more = f" and {len(self.changed) - 1} more" if len(self.changed) > 1 else ""
        changed = f" · {self.changed[0]}{more}" if self.changed else ""
        return f"{self.profile}{changed} · {self.created[5:16].replace('T', ' ')} · {self.ref.rpartition('-')[2][:6]}"


@lru_cache(maxsize=4)
def _reports(root: Path, at: int) -> tuple[Report, ...]:
    store, found = Store(root), list[Report]()
    for ref in store.refs("report"):
        try:
            m = store.manifest(ref)
            given = report_arguments(m.recipe)
            called, measures = given.title or given.profile, chosen_measures(given.settings)
            found.append(Report(str(ref), called, m.provenance.created, given.arms, given.changes, measures))
        except (OSError, UserError):  # another version made it, so it is not listed
            continue
    return tuple(sorted(found, key=lambda r: (r.created, r.ref), reverse=True))


def reports(root: Path) -> tuple[Report, ...]:
    """Return the reports, newest first. A report has the name of its newest run."""
    called = {run.report: run.profile for run in reversed(all_runs(root)) if run.report}
    if root.is_dir() and (mirror := mirror_of(root)):
        mirror.refresh_names()
    folder = root / "report"  # its modification time changes whenever a report is added or removed
    found = _reports(root, folder.stat().st_mtime_ns if folder.is_dir() else 0)
    changed = rarest_first([one.changed for one in found])
    return tuple(
        replace(one, profile=called.get(one.ref, one.profile), changed=changes)
        for one, changes in zip(found, changed, strict=True)
    )


def descent(root: Path, ref: str) -> pa.Table:
    """Return the rows of catalog.ARTIFACTS for an artifact and everything that it was made from, oldest first."""
    store = Store(root)
    refs = {each for _, each, _ in catalog.lineage(store, Ref.parse(ref))}
    return catalog.artifacts_of(store, refs).sort_by([("created", "ascending"), ("ref", "ascending")])


@lru_cache(maxsize=512)
def _ask(root: Path, report: str, at: int, name: str, parameters: bytes, other: str | None) -> pa.Table:
    return _opened(root, report, at, other).ask(name, orjson.loads(parameters))


@lru_cache(maxsize=4)
def _opened(root: Path, report: str, at: int, other: str | None) -> Views:
    """Open views, cached, because opening takes longer than most queries. at: modification time of the manifest."""
    store = Store(root)
    inputs, arms = _inputs(store, report)
    tables = helper_tables(inputs, arms)
    if other is not None:
        second, _ = _inputs(store, other)
        inputs = inputs | {f"{name}_b": refs for name, refs in second.items()}
        tables |= {f"{name}_b": table for name, table in helper_tables(second, arms).items()}
    return Views(inputs_of(store, inputs), tables, threads=4)


atexit.register(_opened.cache_clear)


def _inputs(store: Store, report: str) -> tuple[dict[str, list[str]], list[str]]:
    recipe = store.manifest(Ref.parse(report)).recipe
    try:
        arms = report_arguments(recipe).arms
    except UserError:
        raise UserError(f"{report} was made by another version of the report's stage: run the study again") from None
    return report_inputs(recipe), list(arms)


def ask(
    root: Path, report: str, name: str, parameters: dict[str, object] | None = None, other: str | None = None
) -> pa.Table:
    """Run a named query over the inputs of one report. With `other`, that report's inputs are views too, named
    `<argument>_b`. Raise UserError if the report, an input or a column is missing."""
    path = Store(root).path(Ref.parse(report)) / MANIFEST
    if not path.exists():
        raise UserError(f"no report {report} under {root} (see: varband store ls report)")
    return _ask(root, report, path.stat().st_mtime_ns, name, orjson.dumps(parameters or {}), other)


def sources(root: Path, report: str, names: tuple[str, ...]) -> list[str]:
    """Return the refs of these inputs of a report. Missing inputs have no refs."""
    inputs, _ = _inputs(Store(root), report)
    return [ref for name in names for ref in inputs.get(name, [])]


# ---- two reports of one root: the settings in which they differ, and their accuracy, paired by problem


def settings_apart(root: Path, one: str, other: str) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by path. A setting that one report lacks is None there."""
    left, right = (_settings(root, ref) for ref in (one, other))
    paths = sorted({*left, *right})
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def _settings(root: Path, report: str) -> dict[str, Any]:
    arguments = report_arguments(Store(root).manifest(Ref.parse(report)).recipe)
    return {"profile": arguments.profile, "base model": arguments.model, **_flat(tomllib.loads(arguments.settings))}


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{within}{name}.") if isinstance(value, Mapping) else {f"{within}{name}": value}
    return found


def figures_beside(root: Path, one: str, other: str) -> pa.Table:
    """Return a row for each arm and phase (before or after training): variance band and accuracy in both reports, and
    their difference with its interval, or the reason for none."""
    paired = ask(root, one, "app_compare", other=other)
    left, right = (ask(root, ref, "report_summary") for ref in (one, other))
    return query(named("app_compare_figures"), l=left, r=right, paired=paired)


def names_of(root: Path, one: str, other: str) -> tuple[str, str]:
    """Return the names of two reports' studies, or the refs of the reports if the names are equal."""
    studies = {report.ref: report.profile for report in reports(root)}
    return (one, other) if studies[one] == studies[other] else (studies[one], studies[other])


def sentences(rows: pa.Table, one: str, other: str) -> list[str]:
    """Return the differences of accuracy as text. rows: from the query app_compare. one, other: see names_of.

    >>> row = {"arm": "panel", "phase": "before", "difference_pp": -0.289, "difference_pp_low": -0.426}
    >>> sentences(pa.Table.from_pylist([row | {"difference_pp_high": -0.152}]), "cold", "hot")
    ['panel, untrained, solves 28.9 points less in hot than in cold (95 % interval −42.6 to −15.2).']
    """
    found = []
    for row in rows.to_pylist():
        middle, low, high = (row[f"difference_pp{end}"] for end in ("", "_low", "_high"))
        if low is None:
            continue
        ends = " to ".join(f"{100 * end:+.1f}".replace("-", "−") for end in (low, high))
        undecided = "Undecided: " if low <= 0 <= high else ""
        who = f"{row['arm']}, {'untrained' if row['phase'] == 'before' else 'trained'},"
        points = f"{abs(100 * middle):.1f} points {'less' if middle < 0 else 'more'}"
        found.append(f"{undecided}{who} solves {points} in {other} than in {one} (95 % interval {ends}).")
    return found

"""Reports of a store and named queries over them, cached until a file changes, because pages repeat their queries."""

from __future__ import annotations

import atexit
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

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
from storage.records.runs import all_runs, telling

#: Former names of report inputs.
RENAMED_INPUTS = {"gains": "gain_differences"}


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """Arguments of the report's stage. arms: in the order of their colours. title: title of a user's study. changes:
    differences from its base profile. settings: the whole study as TOML."""

    profile: str
    arms: tuple[str, ...]
    title: str = ""
    changes: tuple[str, ...] = ()
    settings: str = ""
    model: str = ""


def report_arguments(recipe: Recipe) -> ReportArguments:
    """Return a report's arguments. Errors: UserError for a report of another version of its stage."""
    return restored(ReportArguments, recipe.arguments)


def report_inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Return the inputs of a report by their present names."""
    return {RENAMED_INPUTS.get(name, name): refs for name, refs in recipe.inputs.items()}


@dataclass(frozen=True, slots=True)
class Report:
    """One report of the store. profile: the study's name. arms: in the order of their colours. changed: differences
    from its base profile, ordered by `telling`. measures: the selected ones; empty: all."""

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
        except (OSError, UserError):  # made by another version; left out of the list
            continue
    return tuple(sorted(found, key=lambda r: (r.created, r.ref), reverse=True))


def reports(root: Path) -> tuple[Report, ...]:
    """Return the reports, newest first, named after their newest runs."""
    called = {run.report: run.profile for run in reversed(all_runs(root)) if run.report}
    if root.is_dir() and (mirror := mirror_of(root)):
        mirror.refresh_names()
    folder = root / "report"  # its modification time changes when a report is made or removed
    found = _reports(root, folder.stat().st_mtime_ns if folder.is_dir() else 0)
    changed = telling([one.changed for one in found])
    return tuple(
        replace(one, profile=called.get(one.ref, one.profile), changed=changes)
        for one, changes in zip(found, changed, strict=True)
    )


def descent(root: Path, ref: str) -> pa.Table:
    """Return the rows of catalog.ARTIFACTS for an artifact and everything it was made from, oldest first."""
    store = Store(root)
    refs = {each for _, each, _ in catalog.lineage(store, Ref.parse(ref))}
    return catalog.artifacts_of(store, refs).sort_by([("created", "ascending"), ("ref", "ascending")])


@lru_cache(maxsize=512)
def _ask(root: Path, report: str, at: int, name: str, parameters: bytes, other: str | None) -> pa.Table:
    return _opened(root, report, at, other).ask(name, orjson.loads(parameters))


@lru_cache(maxsize=4)
def _opened(root: Path, report: str, at: int, other: str | None) -> Views:
    """Open views, cached, because opening costs more than most queries. at: time of the report's manifest."""
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
    """Run a named query over one report's inputs; with `other`, also over that report's inputs, as `<argument>_b`.
    Errors: UserError if the report, one of its inputs or a column is missing."""
    path = Store(root).path(Ref.parse(report)) / MANIFEST
    if not path.exists():
        raise UserError(f"no report {report} under {root} (see: varband store ls report)")
    return _ask(root, report, path.stat().st_mtime_ns, name, orjson.dumps(parameters or {}), other)


def sources(root: Path, report: str, names: tuple[str, ...]) -> list[str]:
    """Return the refs of some inputs of a report; missing inputs have none."""
    inputs, _ = _inputs(Store(root), report)
    return [ref for name in names for ref in inputs.get(name, [])]

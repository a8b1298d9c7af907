"""Fast reading for dashboards: what a store holds, and named queries of one report, remembered until a file changes.

Nothing here imports a dashboard library; a page asks again at every look and pays only for what is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import orjson
import pyarrow as pa

from storage import catalog
from storage.artifacts import Ref
from storage.errors import UserError
from storage.manifest import Manifest
from storage.store import MANIFEST, Store
from storage.views import helper_tables, inputs_of, views

Stamp = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """One report of the store, as lists of runs show it. `arms`: in the order in which everything is coloured."""

    ref: str
    profile: str
    created: str
    arms: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.profile} · {self.created[:16].replace('T', ' ')} · {self.ref.rpartition('-')[2][:8]}"


def stamp(root: Path) -> Stamp:
    """Changes when an artifact is made or removed: the times of the kinds' folders."""
    if not root.is_dir():
        return ()
    folders = (p for p in sorted(root.iterdir()) if p.is_dir() and not p.name.startswith("."))
    return tuple((p.name, p.stat().st_mtime_ns) for p in folders)


@lru_cache(maxsize=4)
def _artifacts(root: Path, at: Stamp) -> pa.Table:
    return catalog.artifacts(root)


def artifacts(root: Path) -> pa.Table:
    """Every artifact. Schema: storage.catalog.ARTIFACTS."""
    return _artifacts(root, stamp(root))


@lru_cache(maxsize=4)
def _reports(root: Path, at: int) -> tuple[Report, ...]:
    found, store = [], Store(root)
    for ref in store.refs("report"):
        try:
            m = orjson.loads((store.path(ref) / MANIFEST).read_bytes())
            given = m["recipe"]["arguments"]
            found.append(Report(str(ref), given["profile"], m["provenance"]["created"], tuple(given["arms"])))
        except (OSError, ValueError, KeyError, TypeError):  # of another version: it has no place in these lists
            continue
    return tuple(sorted(found, key=lambda r: (r.created, r.ref), reverse=True))


def reports(root: Path) -> tuple[Report, ...]:
    """Newest first."""
    folder = root / "report"
    return _reports(root, folder.stat().st_mtime_ns) if folder.is_dir() else ()


def manifest(root: Path, ref: str) -> Manifest:
    return Store(root).manifest(Ref.parse(ref))


@lru_cache(maxsize=512)
def _ask(root: Path, report: str, at: int, query: str, parameters: bytes, other: str | None) -> pa.Table:
    store = Store(root)
    inputs, arms = _inputs(store, report)
    tables = helper_tables(inputs, arms)
    if other is not None:
        second, _ = _inputs(store, other)
        inputs = inputs | {f"{name}_b": refs for name, refs in second.items()}
        tables |= {f"{name}_b": table for name, table in helper_tables(second, arms).items()}
    with views(inputs_of(store, inputs), tables, threads=4) as asked:
        return asked.ask(query, orjson.loads(parameters))


def _inputs(store: Store, report: str) -> tuple[dict[str, list[str]], list[str]]:
    recipe = store.manifest(Ref.parse(report)).recipe
    arms = recipe.arguments.get("arms")
    if not isinstance(arms, list):
        raise UserError(f"{report} was made by another version of the report's stage: run the study again")
    return dict(recipe.inputs), [str(a) for a in arms]


def ask(root: Path, report: str, query: str, parameters: dict[str, object] | None = None,
        other: str | None = None) -> pa.Table:  # fmt: skip
    """A named query over one report's inputs; with `other`, that report's inputs too, as `<argument>_b`.

    Errors: UserError if the report, one of its inputs or a column is not there.
    """
    path = Store(root).path(Ref.parse(report)) / MANIFEST
    if not path.exists():
        raise UserError(f"no report {report} under {root} (see: varband ls report)")
    return _ask(root, report, path.stat().st_mtime_ns, query, orjson.dumps(parameters or {}), other)


def sources(root: Path, report: str, names: tuple[str, ...]) -> list[str]:
    """Refs of some arguments of a report."""
    inputs = manifest(root, report).recipe.inputs
    return [ref for name in names for ref in inputs.get(name, [])]

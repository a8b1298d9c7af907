"""Garbage: what nobody wants any more, moved to a bin before it is deleted.

Wanted, with all that it was made from: reports, audits, pools, trainings (an adapter is the dearest thing here), pins,
whatever a run planned that has not finished, and what is younger than a limit. The ledger is never touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
from pydantic import ValidationError

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.durable import write_durably
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.pins import pins
from storage.records.runs import Run, all_runs, record_paths, run_path
from storage.roots import root_option

BIN = ".bin"
OLDER_THAN = timedelta(days=7)
#: A scratch folder in which nothing was written for this long has no writer any more: all write without a pause.
SILENT_SCRATCH = timedelta(hours=1)
GARBAGE = pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("why", pa.string())])
ALWAYS_KEPT = ("report", "training", "audit", "pool")


@dataclass(frozen=True, slots=True)
class Doomed:
    """path: a folder or file below the root. why: in words."""

    path: Path
    why: str


def note_planned(root: Path, run: str, refs: Iterable[Ref]) -> None:
    """What a run needs, in `runs/<run>.jsonl`, a ref a line: kept from then on until it has finished."""
    path = run_path(root, run).with_suffix(".jsonl")
    content = b"".join(orjson.dumps(str(ref)) + b"\n" for ref in refs)
    write_durably(path, content)
    if mirror := mirror_of(root):
        mirror.record(path, content, lasting=True)


def planned_refs(root: Path, run: str) -> list[Ref]:
    """Errors: UserError for a run that noted nothing."""
    path = run_path(root, run).with_suffix(".jsonl")
    if not path.exists():
        raise UserError(f"no run '{run}' under {root} noted what it needs (see: varband runs)")
    return _noted(path)


def studies_of(root: Path) -> dict[str, list[str]]:
    """Names of the studies whose runs need an artifact, by ref, newest first."""
    found: dict[str, list[str]] = {}
    for run in all_runs(root):
        path = run_path(root, run.id).with_suffix(".jsonl")
        for ref in _noted(path) if path.exists() else ():
            names = found.setdefault(str(ref), [])
            if run.profile not in names:
                names.append(run.profile)
    return found


def _noted(path: Path) -> list[Ref]:
    return [Ref.parse(orjson.loads(line)) for line in path.read_bytes().splitlines()]


@contextmanager
def collecting(root: Path, *, alone: bool) -> Iterator[None]:
    """Held by a run while it notes what it needs, and `alone` by the collection while it looks and moves. On a root
    that several machines share without common locks, records and age protect what others want."""
    (root / ".locks").mkdir(parents=True, exist_ok=True)
    with (root / ".locks" / "gc.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def collect(root: Path, *, older_than: timedelta = OLDER_THAN, remove: bool) -> pa.Table:
    """What is garbage now; with `remove` it is moved to the bin, and what an earlier call put there is deleted.

    Schema: GARBAGE. Errors: UserError where what is wanted cannot be known (a run or a pin that cannot be read).
    """
    with collecting(root, alone=True):
        store = Store(root)
        binned = sorted((root / BIN).glob("*"))
        found = [*_artifacts(store, older_than), *_leftovers(store, older_than)]
        rows = [described(root, one.path, one.why) for one in found]
        rows += [described(root, path, "in the bin since an earlier call") for path in binned]
        if remove:
            for path in binned:
                shutil.rmtree(path)
            to_bin(store, found)
    return pa.Table.from_pylist(rows, schema=GARBAGE)


def restore(root: Path) -> pa.Table:
    """Put back what lies in the bin; what was made again meanwhile stays as it is. Schema: GARBAGE."""
    rows = []
    with collecting(root, alone=True):
        for call in sorted((root / BIN).glob("*")):
            for path in sorted(call.glob("*/*")):
                target = root / path.relative_to(call)
                if not target.exists():
                    rows.append(described(call, path, "put back"))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(path, target)
                    if mirror := mirror_of(root):
                        ref = _artifact(root, target)
                        _ = mirror.publish(target, ref, over=None) if ref else mirror.push(target)
            shutil.rmtree(call)
    return pa.Table.from_pylist(rows, schema=GARBAGE)


def _artifacts(store: Store, older_than: timedelta) -> list[Doomed]:
    manifests = dict(readable_manifests(store))
    kept = wanted(
        manifests, pinned={Ref.parse(p.ref) for p in pins(store.root)} | unfinished(store.root), age=older_than
    )
    return [Doomed(store.path(ref), "nothing kept is made from it") for ref in manifests if ref not in kept]


def wanted(manifests: Mapping[Ref, Manifest], *, pinned: set[Ref], age: timedelta) -> set[Ref]:
    """Every artifact that is kept: pinned, younger than `age` or always kept, with all that it was made from."""
    limit = datetime.now(UTC) - age
    young = {ref for ref, m in manifests.items() if datetime.fromisoformat(m.provenance.created) > limit}
    heads = young | {ref for ref in manifests if ref.kind in ALWAYS_KEPT}
    return closure(manifests, heads | pinned)


def closure(manifests: Mapping[Ref, Manifest], heads: Iterable[Ref]) -> set[Ref]:
    """These that exist, and all that they were made from."""
    kept: set[Ref] = set()
    waiting = [ref for ref in heads if ref in manifests]
    while waiting:
        ref = waiting.pop()
        if ref not in kept:
            kept.add(ref)
            waiting += [parent for parent in manifests[ref].input_refs if parent in manifests]
    return kept


def readable_manifests(store: Store) -> Iterator[tuple[Ref, Manifest]]:
    """Of every artifact whose manifest can be read; the others are being replaced, or `varband doctor` names them."""
    for ref in store.refs():
        with suppress(UserError):
            yield ref, store.manifest(ref)


def _leftovers(store: Store, older_than: timedelta) -> Iterator[Doomed]:
    """Work folders of what exists by now, and what dead writers left."""
    for path in sorted((store.root / ".work").glob("*")):
        if store.has(Ref.parse(path.name)) and _silence(path) > older_than:
            yield Doomed(path, "work folder of what is finished")
    for path in sorted((store.root / ".scratch").glob("*")):
        if _silence(path) > max(older_than, SILENT_SCRATCH):
            yield Doomed(path, "scratch of a writer that is gone")


def unfinished(root: Path, but: str = "") -> set[Ref]:
    """What every run but one needs that has not finished, or that has no record (an import of published files)."""
    records = record_paths(root)
    notes = {path.stem: path for path in (root / "runs").glob("*.jsonl")}
    for path in records:
        try:
            run = Run.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise UserError(
                f"{path}: no run record of this version ({error.errors()[0]['msg']}), so what that run needs is not"
                " known and nothing is collected; mend or remove it"
            ) from None
        if run.state == "finished" or run.id == but:
            notes.pop(run.id, None)
        elif run.id not in notes:
            raise UserError(
                f"run {run.id} is {run.shown_state}, and an earlier version did not note what it needs: nothing is"
                f" collected; `varband resume {run.id}{root_option(root)}` notes it, or remove {path}"
            )
    return {ref for path in notes.values() for ref in _noted(path)}


def _silence(path: Path) -> timedelta:
    """Since anything in a file or folder was written; none where something goes while it is looked at: a writer is
    at work there."""
    try:
        newest = max(inner.lstat().st_mtime for inner in (path, *path.rglob("*")))
    except FileNotFoundError:
        return timedelta(0)
    return timedelta(seconds=time.time() - newest)


def to_bin(store: Store, found: Iterable[Doomed]) -> None:
    call = store.root / BIN / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    for one in found:
        target = call / one.path.relative_to(store.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        mirror, ref = mirror_of(store.root), _artifact(store.root, one.path)
        if mirror and ref:
            mirror.refresh(ref, now=True)  # with its files: the bin is on this machine alone
        os.rename(one.path, target)
        if mirror and ref:
            mirror.remove(ref)
        elif mirror and target.is_file():
            mirror.forget(one.path)


def _artifact(root: Path, path: Path) -> Ref | None:
    """Which artifact lies there; null for a work or scratch folder and for a run's record."""
    room = path.relative_to(root).parts[0]
    return None if room.startswith(".") or room == "runs" else Ref.parse(path.name)


def described(root: Path, path: Path, why: str) -> dict[str, object]:
    sizes = [p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()]
    if mirror_of(root) and (ref := _artifact(root, path)):  # little of it may lie here
        sizes = [entry.bytes for entry in Store(root).manifest(ref).files]
    return {"path": str(path.relative_to(root)), "bytes": sum(sizes), "why": why}

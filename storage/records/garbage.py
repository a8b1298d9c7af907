"""Garbage collection. Artifacts that are not needed are moved to a bin, and deleted later.

Reports, audits, pools, trainings, planned artifacts of unfinished runs and recent artifacts are needed, and so is
everything they were made from. The ledger never changes.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.runs import notes_path, planned_refs, run_named, run_path, unfinished
from storage.roots import linkless, lock_file, root_option

BIN = ".bin"
OLDER_THAN = timedelta(days=7)
#: After this time without a write, the process that wrote to a scratch folder is dead.
SILENT_SCRATCH = timedelta(hours=1)
GARBAGE = nullable("path str, bytes big, why str")
ALWAYS_KEPT = ("report", "training", "audit", "pool")
#: A folder or file of the root, and why it is removed.
Doomed = tuple[Path, str]


@contextmanager
def collecting(root: Path, *, alone: bool, only_reads: bool = False) -> Iterator[None]:
    """Hold the lock of the root. A run shares it while it records its planned artifacts, and a garbage collection holds
    it alone. Machines without a common lock rely on the records and on the age of files. only_reads: go on without a
    lock in a read-only root."""
    with ExitStack() as held:
        try:
            handle = held.enter_context(lock_file(root, "gc").open("w"))
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        except OSError as error:
            if not only_reads or error.errno not in (errno.EROFS, errno.EACCES):
                raise
        yield


def collect(
    root: Path, *, older_than: timedelta = OLDER_THAN, remove: bool, binned_for: timedelta = timedelta(0)
) -> pa.Table:
    """Return the garbage (schema: GARBAGE). remove: move artifacts to the bin, and delete what has been there for at
    least `binned_for`. Two calls at the same time never delete files that the other one moves. Raise UserError if a run
    or a manifest cannot be read, because needed artifacts are then unknown."""
    earlier = [call for call in _calls(root) if _since(call.lstat().st_mtime) >= binned_for]
    with collecting(root, alone=True, only_reads=not remove):
        store, binned = Store(root), [call for call in earlier if call.exists()]
        found = [*_unwanted(store, older_than), *_leftovers(store, older_than)]
        rows = _described(root, [*found, *((path, "in the bin since an earlier call") for path in binned)])
        if remove:
            for path in binned:
                shutil.rmtree(path)
            to_bin(store, found)
    return rows


def _calls(root: Path) -> list[Path]:
    """Return the bin's folders, one per earlier call. Files and links that users put there are ignored."""
    return sorted(path for path in (root / BIN).glob("*") if path.is_dir() and not path.is_symlink())


def restore(root: Path) -> pa.Table:
    """Move everything in the bin back, except artifacts that were made again in the meantime. Schema: GARBAGE."""
    back = list[Doomed]()
    with collecting(root, alone=True):
        for call in _calls(root):
            for path in sorted(call.glob("*/*")):
                target = root / path.relative_to(call)
                if not target.exists():
                    back.append((target, "put back"))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(path, target)
                    if mirror := mirror_of(root):
                        ref = _artifact(root, target)
                        _ = mirror.publish(target, ref, over=None) if ref else mirror.push(target)
            shutil.rmtree(call)
        return _described(root, back)


def _unwanted(store: Store, older_than: timedelta) -> list[Doomed]:
    manifests, now = manifests_of(store), datetime.now(UTC)
    young = {r for r, m in manifests.items() if now - datetime.fromisoformat(m.provenance.created) < older_than}
    always = {ref for ref in manifests if ref.kind in ALWAYS_KEPT}
    kept = closure(manifests, young | always | unfinished(store.root))
    return [(store.path(ref), "nothing kept is made from it") for ref in manifests if ref not in kept]


def closure(manifests: Mapping[Ref, Manifest], heads: Iterable[Ref]) -> set[Ref]:
    """Return those of these artifacts that exist, and everything that they were made from."""
    kept: set[Ref] = set()
    waiting = [ref for ref in heads if ref in manifests]
    while waiting:
        ref = waiting.pop()
        if ref not in kept:
            kept.add(ref)
            waiting += [parent for parent in manifests[ref].input_refs if parent in manifests]
    return kept


def manifests_of(store: Store) -> dict[Ref, Manifest]:
    """Return the manifests of all artifacts. Raise UserError for an unreadable one, because its inputs are unknown."""
    found = {}
    for ref in store.refs():
        try:
            found[ref] = store.manifest(ref)
        except FileNotFoundError:
            continue  # a run is replacing it, and has recorded its planned artifacts
        except UserError as error:
            if (store.path(ref) / MANIFEST).exists():
                raise UserError(
                    f"{error}; its inputs are unknown, so nothing is removed. `varband store verify"
                    f" --repair{root_option(store.root)}` moves it away; after that, give the same command again"
                ) from None
    return found


def _leftovers(store: Store, older_than: timedelta) -> Iterator[Doomed]:
    """Yield work folders of finished artifacts, and scratch folders of dead processes."""
    for path in sorted((store.root / ".work").glob("*")):
        ref = Ref.named(path.name)
        if ref and store.fresh(ref) and _silence(path) > older_than:
            yield path, "work folder of a finished artifact"
    for path in sorted(store.scratch.glob("*")):
        if _silence(path) > max(older_than, SILENT_SCRATCH):
            yield path, "temporary files of a process that ended"


def _silence(path: Path) -> timedelta:
    """Return the time since the last write to a file or folder; 0 if a process removes something just now."""
    try:
        newest = max(inner.lstat().st_mtime for inner in (path, *path.rglob("*")))
    except FileNotFoundError:
        return timedelta(0)
    return _since(newest)


def _since(moment: float) -> timedelta:
    return timedelta(seconds=time.time() - moment)


def to_bin(store: Store, found: Iterable[Doomed]) -> None:
    call = linkless(store.root, f"{BIN}/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%f')}")
    for path, _ in found:
        target = call / path.relative_to(store.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        mirror, ref = mirror_of(store.root), _artifact(store.root, path)
        if mirror and ref:
            mirror.refresh(ref, now=True)  # with all files, because the bin is on this machine only
        os.rename(path, target)
        if mirror and ref:
            mirror.remove(ref)
        elif mirror and target.is_file():
            mirror.forget(path)


def _artifact(root: Path, path: Path) -> Ref | None:
    """Return the artifact in a folder; None if the folder is for work or scratch, or if it is a run's record."""
    room = path.relative_to(root).parts[0]
    return None if room.startswith(".") or room == "runs" else Ref.parse(path.name)


def _described(root: Path, found: Iterable[Doomed]) -> pa.Table:
    rows = []
    for path, why in found:
        sizes = [p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()]
        if mirror_of(root) and (ref := _artifact(root, path)):  # some files may be only on object storage
            sizes = [entry.bytes for entry in Store(root).manifest(ref).files]
        rows.append({"path": str(path.relative_to(root)), "bytes": sum(sizes), "why": why})
    return pa.Table.from_pylist(rows, schema=GARBAGE)


def remove(root: Path, what: str, found: Ref | None, *, really: bool) -> pa.Table:
    """Return the artifacts and records that only this study or artifact uses; with `really`, move them to the bin.
    Ledger and charges stay. what: a run's id or a study's name. found: the artifact, instead of a study. Schema:
    GARBAGE. Raise UserError for an ambiguous name, a running run, or an artifact that another one needs."""
    with collecting(root, alone=True, only_reads=not really):
        store = Store(root)
        manifests = manifests_of(store)
        doomed = _study(store, manifests, what) if found is None else [_one(store, manifests, found)]
        rows = _described(root, doomed)
        if really:
            to_bin(store, doomed)
    return rows


def _one(store: Store, manifests: Mapping[Ref, Manifest], ref: Ref) -> Doomed:
    if ref in unfinished(store.root):
        raise UserError(f"{ref} is needed by a run that has not finished (see: varband runs)")
    if users := [one for one, m in manifests.items() if ref in m.input_refs]:
        raise UserError(f"{ref}: {len(users)} artifacts were made from it, for example {users[0]}; remove those first")
    return store.path(ref), "named"


def _study(store: Store, manifests: Mapping[Ref, Manifest], what: str) -> list[Doomed]:
    root, run = store.root, run_named(store.root, what)
    if run is None:
        raise UserError(f"no run or study '{what[:80]}' under {root} (see: varband runs, varband store ls)")
    if run.current_state == "running":
        raise UserError(f"run {run.id} is running: stop it first")
    notes = notes_path(root, run.id)
    planned = planned_refs(root, run.id) if notes.exists() else []
    mine = closure(manifests, [*planned, *([Ref.parse(run.report)] if run.report else [])])
    others = [ref for ref in manifests if ref.kind in ("report", "audit") and str(ref) != run.report]
    kept = closure(manifests, {*others, *unfinished(root, but=run.id)})
    records = [path for path in (run_path(root, run.id), notes) if path.exists()]
    return [(store.path(ref), f"used by {run.id} only") for ref in sorted(mine - kept)] + [
        (path, f"record of {run.id}") for path in records
    ]

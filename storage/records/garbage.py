"""Garbage: what nobody wants any more, moved to a bin before it is deleted.

Wanted, with all that it was made from: reports, audits, pools, trainings (an adapter is the dearest thing here), pins,
whatever a run planned that has not finished, and what is younger than a limit. The ledger is never touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.notes import note_planned as note_planned
from storage.records.notes import notes_path, planned_refs, unfinished
from storage.records.pins import pins
from storage.records.runs import Run, run_named, run_path
from storage.roots import linkless, lock_file, root_option

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


@contextmanager
def collecting(root: Path, *, alone: bool, only_reads: bool = False) -> Iterator[None]:
    """Held by a run while it notes what it needs, and `alone` by the collection while it looks and moves. On a root
    that several machines share without common locks, records and age protect what others want.

    only_reads: nothing is written, so that a root where this user cannot, such as a backup, needs no lock.
    """
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
    """What is garbage now; with `remove` it is moved to the bin, and what an earlier call put there is deleted.

    binned_for: how long that lay there at least. Of two calls at once neither deletes what the other moves.
    Schema: GARBAGE. Errors: UserError where what is wanted cannot be known (a run, a pin or a manifest that cannot be
    read).
    """
    earlier = [call for call in _calls(root) if _since(call.lstat().st_mtime) >= binned_for]
    with collecting(root, alone=True, only_reads=not remove):
        store, binned = Store(root), [call for call in earlier if call.exists()]
        found = [*_artifacts(store, older_than), *_leftovers(store, older_than)]
        rows = [described(root, one.path, one.why) for one in found]
        rows += [described(root, path, "in the bin since an earlier call") for path in binned]
        if remove:
            for path in binned:
                shutil.rmtree(path)
            to_bin(store, found)
    return pa.Table.from_pylist(rows, schema=GARBAGE)


def _calls(root: Path) -> list[Path]:
    """A folder in the bin for each call that moved something. What people put or linked there is theirs."""
    return sorted(path for path in (root / BIN).glob("*") if path.is_dir() and not path.is_symlink())


def restore(root: Path) -> pa.Table:
    """Put back what lies in the bin; what was made again meanwhile stays as it is. Schema: GARBAGE."""
    rows = []
    with collecting(root, alone=True):
        for call in _calls(root):
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
    manifests = manifests_of(store)
    kept = wanted(
        manifests, pinned={Ref.parse(p.ref) for p in pins(store.root)} | unfinished(store.root), age=older_than
    )
    return [Doomed(store.path(ref), "nothing kept is made from it") for ref in manifests if ref not in kept]


def wanted(manifests: Mapping[Ref, Manifest], *, pinned: set[Ref], age: timedelta) -> set[Ref]:
    """Every artifact that is kept: pinned, younger than `age` or always kept, with all that it was made from."""
    young = {ref for ref, m in manifests.items() if _age(ref, m) < age}
    heads = young | {ref for ref in manifests if ref.kind in ALWAYS_KEPT}
    return closure(manifests, heads | pinned)


def _age(ref: Ref, manifest: Manifest) -> timedelta:
    """Errors: UserError for a time that is none."""
    try:
        return datetime.now(UTC) - datetime.fromisoformat(manifest.provenance.created)
    except (ValueError, TypeError):
        raise UserError(
            f"{ref}: its manifest says it was made '{manifest.provenance.created[:40]}', so its age is not known and"
            " nothing is collected; varband store rm takes it away, and the same command makes it again"
        ) from None


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


def manifests_of(store: Store) -> dict[Ref, Manifest]:
    """Of every artifact. Errors: UserError for one that cannot be read: what else it was made from is not known."""
    found = {}
    for ref in store.refs():
        try:
            found[ref] = store.manifest(ref)
        except FileNotFoundError:
            continue  # being replaced, by a run that noted what it needs
        except UserError as error:
            if (store.path(ref) / MANIFEST).exists():
                raise UserError(
                    f"{error}; what it was made from is not known, so nothing is removed: `varband store verify"
                    f" --repair{root_option(store.root)}` sets it aside, and the same command makes it again"
                ) from None
    return found


def readable_manifests(store: Store) -> Iterator[tuple[Ref, Manifest]]:
    """Of every artifact whose manifest can be read; `varband doctor` names the others."""
    for ref in store.refs():
        with suppress(UserError, FileNotFoundError):
            yield ref, store.manifest(ref)


def _leftovers(store: Store, older_than: timedelta) -> Iterator[Doomed]:
    """Work folders of what exists by now, and what dead writers left."""
    for path in sorted((store.root / ".work").glob("*")):
        ref = Ref.named(path.name)
        if ref and store.fresh(ref) and _silence(path) > older_than:
            yield Doomed(path, "work folder of what is finished")
    for path in sorted(store.scratch.glob("*")):
        if _silence(path) > max(older_than, SILENT_SCRATCH):
            yield Doomed(path, "scratch of a writer that is gone")


def _silence(path: Path) -> timedelta:
    """Since anything in a file or folder was written; none where something goes while it is looked at: a writer is
    at work there."""
    try:
        newest = max(inner.lstat().st_mtime for inner in (path, *path.rglob("*")))
    except FileNotFoundError:
        return timedelta(0)
    return _since(newest)


def _since(moment: float) -> timedelta:
    return timedelta(seconds=time.time() - moment)


def to_bin(store: Store, found: Iterable[Doomed]) -> None:
    call = linkless(store.root, f"{BIN}/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%f')}")
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


# Removing one study, or one artifact, that somebody names. A study goes with what nothing else is made from or wants.
# What was paid for stays: ledger and journals of spending.


def remove(root: Path, what: str, found: Ref | None, *, really: bool) -> pa.Table:
    """What goes; with `really` it is moved to the bin. what: a run's id or a study's name; found: an artifact instead.

    Schema: GARBAGE. Errors: UserError for what is at work, pinned, or needed by something that stays, and for a name of
    several.
    """
    with collecting(root, alone=True, only_reads=not really):
        store = Store(root)
        manifests = manifests_of(store)
        pinned = {Ref.parse(pin.ref) for pin in pins(root)}
        if found is not None:
            doomed = [_one(store, manifests, pinned, found)]
        else:
            doomed = _study(store, manifests, pinned, what)
        rows = [described(root, one.path, one.why) for one in doomed]
        if really:
            to_bin(store, doomed)
    return pa.Table.from_pylist(rows, schema=GARBAGE)


def _one(store: Store, manifests: Mapping[Ref, Manifest], pinned: set[Ref], ref: Ref) -> Doomed:
    if ref in pinned:
        raise UserError(f"{ref} is pinned; varband store pin {ref} --off takes the pin off")
    if ref in unfinished(store.root):
        raise UserError(f"{ref} is needed by a run that has not finished (see: varband runs)")
    if users := [one for one, m in manifests.items() if ref in m.input_refs]:
        raise UserError(f"{ref}: {len(users)} artifacts are made from it, for example {users[0]}: remove those first")
    return Doomed(store.path(ref), "named")


def _study(store: Store, manifests: Mapping[Ref, Manifest], pinned: set[Ref], what: str) -> list[Doomed]:
    run = run_named(store.root, what)
    if run is None:
        raise UserError(f"no run or study '{what[:80]}' under {store.root} (see: varband runs, varband store ls)")
    if run.shown_state == "running":
        raise UserError(f"run {run.id} is at work: stop it first")
    mine = closure(manifests, [*_heads(run), *_noted(store.root, run)])
    others = [ref for ref in manifests if ref.kind in ("report", "audit") and str(ref) != run.report]
    kept = closure(manifests, [*others, *pinned, *unfinished(store.root, but=run.id)])
    gone = [Doomed(store.path(ref), f"of {run.id} alone") for ref in sorted(mine - kept)]
    records = (run_path(store.root, run.id), notes_path(store.root, run.id))
    return gone + [Doomed(path, f"record of {run.id}") for path in records if path.exists()]


def _heads(run: Run) -> list[Ref]:
    return [Ref.parse(run.report)] if run.report else []


def _noted(root: Path, run: Run) -> list[Ref]:
    return planned_refs(root, run.id) if notes_path(root, run.id).exists() else []

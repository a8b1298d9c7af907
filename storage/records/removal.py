"""Removing one study, or one artifact, that somebody names: moved to the bin of `gc`, from which it can be put back.

A study goes with what nothing else is made from or wants. What was paid for stays: ledger and journals of spending.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.garbage import GARBAGE, Doomed, closure, collecting, described, manifests_of, to_bin
from storage.records.names import run_named
from storage.records.notes import notes_path, planned_refs, unfinished
from storage.records.pins import pins
from storage.records.runs import Run, run_path


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
        raise UserError(f"{ref} is pinned; varband pin {ref} --off takes the pin off")
    if ref in unfinished(store.root):
        raise UserError(f"{ref} is needed by a run that has not finished (see: varband runs)")
    if users := [one for one, m in manifests.items() if ref in m.input_refs]:
        raise UserError(f"{ref}: {len(users)} artifacts are made from it, for example {users[0]}: remove those first")
    return Doomed(store.path(ref), "named")


def _study(store: Store, manifests: Mapping[Ref, Manifest], pinned: set[Ref], what: str) -> list[Doomed]:
    run = run_named(store.root, what)
    if run is None:
        raise UserError(f"no run or study '{what[:80]}' under {store.root} (see: varband runs, varband ls)")
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

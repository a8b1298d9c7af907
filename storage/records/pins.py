"""Pins: artifacts that somebody wants kept, `<root>/pins/<ref>.json`, with the reason that they gave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.durable import files_in
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.record import Record
from storage.records.runs import now
from storage.roots import linkless

PINS = pa.schema([("ref", pa.string()), ("why", pa.string()), ("since", pa.string())])


class Pin(Record):
    """`ref` and all that it was made from are kept. until: when the pin was taken off; None while it holds."""

    NAME = "pin"
    ref: str
    why: str
    since: str
    until: str | None = None


def pin(root: Path, ref: Ref, why: str) -> Pin:
    """Errors: UserError without a reason: in a year nobody knows whether a pin without one may go."""
    if not why.strip():
        raise UserError(f"a pin on {ref} needs a reason, for example --why 'figure 3 of the paper'")
    return _write(root, Pin(ref=str(ref), why=why.strip(), since=now()))


def pinned_as(root: Path, text: str) -> list[Ref]:
    """Pinned artifacts whose ref or fingerprint starts so, be they there or gone."""
    return [ref for ref in (Ref.parse(p.ref) for p in pins(root)) if ref.starts(text)]


def unpin(root: Path, ref: Ref) -> Pin:
    """Errors: UserError if it is not pinned."""
    held = next((p for p in pins(root) if p.ref == str(ref)), None)
    if held is None:
        raise UserError(f"{ref} is not pinned (see: varband store pin)")
    return _write(root, held.model_copy(update={"until": now()}))


def pins(root: Path) -> list[Pin]:
    """Those that hold, oldest first. Errors: UserError for one that cannot be read: what it keeps is not known."""
    if mirror := mirror_of(root):
        mirror.follow("pins")
    found = [read_pin(path) for path in files_in(root / "pins", ".json")]
    return sorted((p for p in found if p.until is None), key=lambda p: (p.since, p.ref))


def pins_table(root: Path) -> pa.Table:
    """Schema: PINS."""
    return pa.Table.from_pylist([one.model_dump(include=set(PINS.names)) for one in pins(root)], schema=PINS)


def read_pin(path: Path) -> Pin:
    """Errors: UserError if it is no pin on what it is named after."""
    found = Pin.read(path, "; mend or remove it")
    if found.ref != path.stem:
        raise UserError(f"{path}: the pin of {found.ref[:80]}; mend or remove it")
    return found


def _write(root: Path, one: Pin) -> Pin:
    return one.write(root, linkless(root, f"pins/{one.ref}.json"))

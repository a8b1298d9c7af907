"""Decisions of users: pins, which keep artifacts, and overrides of the grader's verdicts."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import nullable
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.record import Record, keep
from storage.records.runs import now
from storage.roots import files_in, linkless

PINS = nullable("ref str, why str, since str")
OVERRIDES = "overrides"


class Pin(Record):
    """A pin keeps `ref` and everything it was made from. until: when the pin was removed; None while it is active."""

    NAME = "pin"
    ref: str
    why: str
    since: str
    until: str | None = None


def pin(root: Path, ref: Ref, why: str) -> Pin:
    """Pin an artifact. Errors: UserError without a reason, which a user needs before removing the pin."""
    if not why.strip():
        raise UserError(f"a pin on {ref} needs a reason, for example --why 'figure 3 of the paper'")
    return _write(root, Pin(ref=str(ref), why=why.strip(), since=now()))


def pinned_as(root: Path, text: str) -> list[Ref]:
    """Return the pinned artifacts, also deleted ones, whose ref or fingerprint starts with the text."""
    return [ref for ref in (Ref.parse(p.ref) for p in pins(root)) if ref.starts(text)]


def unpin(root: Path, ref: Ref) -> Pin:
    """Remove a pin. Errors: UserError if the artifact is not pinned."""
    held = next((p for p in pins(root) if p.ref == str(ref)), None)
    if held is None:
        raise UserError(f"{ref} is not pinned (see: varband store pin)")
    return _write(root, held.model_copy(update={"until": now()}))


def pins(root: Path) -> list[Pin]:
    """Return the active pins, oldest first. Errors: UserError for an unreadable one."""
    if mirror := mirror_of(root):
        mirror.follow("pins")
    found = [read_pin(path) for path in files_in(root / "pins", ".json")]
    return sorted((p for p in found if p.until is None), key=lambda p: (p.since, p.ref))


def pins_table(root: Path) -> pa.Table:
    """Return the active pins. Schema: PINS."""
    return pa.Table.from_pylist([one.model_dump(include=set(PINS.names)) for one in pins(root)], schema=PINS)


def read_pin(path: Path) -> Pin:
    """Read a pin. Errors: UserError if the file is no pin on the artifact in its name."""
    found = Pin.read(path, "; mend or remove it")
    if found.ref != path.stem:
        raise UserError(f"{path}: the pin of {found.ref[:80]}; mend or remove it")
    return found


def _write(root: Path, one: Pin) -> Pin:
    return one.write(root, linkless(root, f"pins/{one.ref}.json"))


def put_overrides(root: Path, text: str) -> Path:
    """Make a text the active overrides, as `overrides/<time>.jsonl`; an empty text ends them."""
    newest = max((int(path.stem) for path in override_files(root) if path.stem.isdecimal()), default=0)
    # later than all others, even if the clock was set back
    target = root / OVERRIDES / f"{max(time.time_ns(), newest + 1):020d}.jsonl"
    return keep(root, target, text.encode())


def override_files(root: Path) -> list[Path]:
    """Return the files of overrides, oldest first."""
    if mirror := mirror_of(root):
        mirror.sync(OVERRIDES)
    return sorted((root / OVERRIDES).glob("*.jsonl"))


def newest_overrides(root: Path) -> tuple[str, str]:
    """Return (text, name) of the active overrides, or two empty texts."""
    files = override_files(root)
    return (files[-1].read_text(encoding="utf-8"), str(files[-1])) if files else ("", "")

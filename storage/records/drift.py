"""Drift notes: a figure that left its interval, or was graded otherwise. One JSON file a figure; opened once, closed
when the figure is back."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from storage.artifacts.schemas import nullable
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.record import Record
from storage.records.runs import now


class DriftNote(Record):
    """low, high: the interval of the reference figure; value: tonight's. since: the night that opened the note."""

    NAME = "drift note"
    policy: str
    metric: str
    reference: float
    low: float
    high: float
    value: float
    rollouts: int
    why: str
    since: str
    last: str
    open: bool = True

    def words(self) -> str:
        return (
            f"{self.value:.3f} where {self.reference:.3f} [{self.low:.3f}, {self.high:.3f}] was measured"
            f" ({self.rollouts} rollouts; {self.why}; since {self.since})"
        )


FOLDER = "drift"
DRIFT = nullable(
    "policy str, metric str, reference real, low real, high real, value real, rollouts big, why str, since str",
    "last str, open bool",
)


def _path(root: Path, policy: str, metric: str) -> Path:
    return root / FOLDER / f"{hashlib.sha256(f'{policy}|{metric}'.encode()).hexdigest()[:16]}.json"


def note_drift(root: Path, note: DriftNote) -> DriftNote:
    """Keep the note; one that was open already keeps its date. Returns what is kept."""
    path = _path(root, note.policy, note.metric)
    earlier = _read(path)
    kept = note.model_copy(update={"since": earlier.since}) if earlier is not None and earlier.open else note
    return kept.write(root, path)


def close_drift(root: Path, policy: str, metric: str) -> None:
    """The figure is back in its interval: an open note is closed, with the date."""
    path = _path(root, policy, metric)
    earlier = _read(path)
    if earlier is not None and earlier.open:
        earlier.model_copy(update={"open": False, "last": now()}).write(root, path)


def drift_notes(root: Path) -> pa.Table:
    """Every note, open ones first. Schema: DRIFT."""
    if mirror := mirror_of(root):
        mirror.follow(FOLDER)
    notes = [note for path in sorted((root / FOLDER).glob("*.json")) if (note := _read(path)) is not None]
    rows = [n.model_dump() for n in sorted(notes, key=lambda n: (not n.open, n.policy, n.metric))]
    return pa.Table.from_pylist(rows, schema=DRIFT)


def _read(path: Path) -> DriftNote | None:
    with suppress(FileNotFoundError, UserError):
        return DriftNote.read(path)
    return None

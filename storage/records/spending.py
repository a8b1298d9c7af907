"""Spending: the cost of each run, one line per charge, in append-only journals
`<root>/spending/<run>/<start>-<pid>.jsonl`.

A charge is on disk before its rollouts are stored, so that a crash never loses a cost.
"""

import functools
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pydantic import ConfigDict

from storage.artifacts.rows import nullable
from storage.mirror import mirror_of
from storage.records.runs import UNITS, Amounts, run_path
from storage.roots import sync
from storage.sql import query

SPENDING = nullable(
    "run str, time str, ref str, kind str, title str, arm str, rollouts big, correct big, prompt_tokens big",
    *(f"{unit} real" for unit in UNITS),
    "device str",
)
#: File of the root with the team's prices, which users write.
PRICES = "prices.toml"
#: Approximate size of a journal's files on object storage.
PIECE_BYTES = 1 << 15


class Charge(Amounts):
    """One payment. kind: kind of the artifact that was paid for. arm: the arm, or None if arms share the cost. key:
    identifies work that may be sent again but is charged once; empty for other work."""

    model_config = ConfigDict(extra="ignore", strict=True)
    time: str
    ref: str
    kind: str
    title: str
    arm: str | None = None
    rollouts: int = 0
    correct: int = 0
    prompt_tokens: int = 0
    device: str = "cpu"
    key: str = ""


class Journal:
    """The charges of one run. Each process of a run has its own file, so that no two write to the same one."""

    def __init__(self, root: Path, run: str) -> None:
        self.root, self.run = root, run
        self.folder = run_path(root, run).parent.parent / "spending" / run
        self.path = self._new()

    def _new(self) -> Path:
        return self.folder / f"{time.time_ns():020d}-{os.getpid()}.jsonl"

    def enter(self, charges: Iterable[Charge]) -> None:
        """Append charges durably. Object storage uploads whole files, so a long journal continues in a new file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mirror = mirror_of(self.root)
        if mirror and self.path.exists() and self.path.stat().st_size > PIECE_BYTES:
            self.path = self._new()
        new = not self.path.exists()
        self._append(b"".join(charge.model_dump_json().encode() + b"\n" for charge in charges))
        if new:
            sync(self.folder)
            sync(self.folder.parent)
        if mirror:
            mirror.push(self.path)

    def _append(self, lines: bytes) -> None:
        """Append lines whole or not at all, because half a line would make the next one unreadable."""
        with self.path.open("ab", buffering=0) as handle:
            before, left = handle.seek(0, os.SEEK_END), memoryview(lines)
            try:
                while left:
                    left = left[handle.write(left) :]
                os.fsync(handle.fileno())
            except OSError:
                handle.truncate(before)
                raise

    def spent(self) -> Amounts:
        """Return the sum over all processes of the run."""
        return plus(Amounts(), (charge for path in _journals(self.root, self.run) for charge in _charges(path)))

    def has(self, key: str) -> bool:
        """Return whether work with this key was already charged."""
        return any(charge.key == key for path in _journals(self.root, self.run) for charge in _charges(path))

    def lengths(self) -> dict[str, float]:
        """Return the mean tokens of a completion, by arm."""
        means = query(
            "select arm, sum(tokens - prompt_tokens) / sum(rollouts) as mean from charges where arm is not null"
            " group by arm having sum(rollouts) > 0",
            charges=charges(self.root, self.run),
        )
        return {row["arm"]: row["mean"] for row in means.to_pylist()}


def plus(spent: Amounts, charges: Iterable[Amounts]) -> Amounts:
    parts = (spent, *charges)
    return Amounts(**{name: math.fsum(getattr(part, name) for part in parts) for name in UNITS})


def spent_in_month(root: Path, month: str) -> Amounts:
    """Return the cost of all runs of a root in a calendar month of UTC, such as 2026-11."""
    since = datetime.fromisoformat(f"{month}-01T00:00:00+00:00").timestamp()
    paths = [(path, path.stat()) for path in _journals(root)]
    return plus(Amounts(), (_of_month(path, at.st_size, month) for path, at in paths if at.st_mtime >= since))


@functools.lru_cache(maxsize=20_000)
def _of_month(path: Path, size: int, month: str) -> Amounts:
    """Return the sum of a journal in a month. Sums are cached by the journal's size, because journals only grow."""
    return plus(Amounts(), (charge for charge in _charges(path) if charge.time.startswith(month)))


def _journals(root: Path, run: str | None = None) -> list[Path]:
    if mirror := mirror_of(root):
        mirror.sync("spending")
    return sorted((root / "spending").glob(f"{run or '*'}/*.jsonl"))


def _charges(path: Path) -> Iterator[Charge]:
    """Yield the charges of a journal. A line that a crash cut off, or that is no charge, is skipped."""
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            yield Charge.model_validate_json(line)


def charges(root: Path, run: str | None = None) -> pa.Table:
    """Return the charges of one run, or of all. Schema: SPENDING."""
    found = ((path.parent.name, charge) for path in _journals(root, run) for charge in _charges(path))
    rows = [{"run": name, **charge.model_dump()} for name, charge in found]
    return pa.Table.from_pylist(rows, schema=SPENDING)


def spending_by_arm(root: Path, run: str | None = None) -> pa.Table:
    """Return the cost of each arm and kind of artifact, and per correct answer (null if there is none)."""
    return query(
        "select coalesce(arm, '(shared)') as arm, kind, sum(rollouts)::bigint as rollouts,"
        " sum(correct)::bigint as correct, sum(tokens)::bigint as tokens, sum(gpu_hours) as gpu_hours, sum(usd) as usd,"
        " case when sum(correct) > 0 then sum(tokens) / sum(correct) end as tokens_per_correct,"
        " case when sum(correct) > 0 then sum(usd) / sum(correct) end as usd_per_correct"
        " from charges group by 1, 2 order by 1, 2",
        charges=charges(root, run),
    )

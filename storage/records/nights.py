"""Nightly re-evaluations of adapters: one JSON file per night and adapter, never changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import pyarrow as pa

from storage.artifacts.rows import nullable
from storage.mirror import mirror_of
from storage.records.record import Record
from storage.roots import files_in

FOLDER = "nights"
#: The last night of every adapter.
NIGHTS = nullable(
    "adapter str, state str, found str, at str, evaluated real, tonight real, expected real, low real, high real"
)


class Night(Record):
    """The re-evaluation of one adapter in one night.

    number: count of this adapter's nights, from 1. environment: versions and hardware of sampling and grading;
    as_evaluated: whether the evaluation had the same environment. drawn: the rollouts that were sampled under `seed`:
    none, the evaluation's again (`same`), those of a few problems (`canary`) or of all (`whole`). problems, correct:
    counts of the new rollouts, by the environment's grader. z: statistic of the scan. evaluated: accuracy when
    evaluated, under tonight's grader. tonight, expected, low, high: accuracy, its expectation from earlier nights on
    the same problems, and the range of 95 % of nights without a change; None without new rollouts. found: a sentence.
    """

    NAME = "night"
    adapter: str
    number: int
    at: str
    environment: dict[str, str]
    as_evaluated: bool
    drawn: Literal["nothing", "same", "canary", "whole"]
    seed: int
    group_size: int
    problems: tuple[str, ...] = ()
    correct: tuple[int, ...] = ()
    state: Literal["holds", "drifted"]
    found: str
    evaluated: float
    tonight: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    z: float = 0.0

    def keep(self, root: Path) -> Night:
        return self.write(root, root / FOLDER / f"{_named(self.adapter)}-{self.number:05}.json")


def _named(adapter: str) -> str:
    return hashlib.sha256(adapter.encode()).hexdigest()[:16]


def nights_of(root: Path, adapter: str) -> list[Night]:
    """Return every night of an adapter, oldest first. Raise UserError if a record cannot be read."""
    if mirror := mirror_of(root):
        mirror.follow(FOLDER)
    return [Night.read(path) for path in sorted((root / FOLDER).glob(f"{_named(adapter)}-*.json"))]


def last_nights(root: Path) -> pa.Table:
    """Return the last night of every adapter, drifted ones first. Schema: NIGHTS. Errors: see nights_of."""
    if mirror := mirror_of(root):
        mirror.follow(FOLDER)
    last = {path.stem.partition("-")[0]: path for path in files_in(root / FOLDER, ".json")}
    nights = sorted(
        (Night.read(path) for path in last.values()), key=lambda night: (night.state != "drifted", night.adapter)
    )
    return pa.Table.from_pylist([night.model_dump(include=set(NIGHTS.names)) for night in nights], schema=NIGHTS)

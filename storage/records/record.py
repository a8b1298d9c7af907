"""Records: small JSON files outside the artifacts: the team's overrides of verdicts, the register of studies, and
nightly re-evaluations. Records are written atomically, and uploaded if the root is on object storage.

A damaged file is moved to `<root>/.damaged`, never deleted.
"""

import os
import time
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from storage.artifacts.manifest import Moment
from storage.artifacts.rows import nullable
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.roots import files_in, linkless, write_durably

DAMAGED = ".damaged"


class Record(BaseModel):
    """A record in a file. NAME: what messages call it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    NAME: ClassVar[str]

    @classmethod
    def read(cls, path: Path, fix: str = "") -> Self:
        """Read a record. fix: advice for the error. Raise UserError for another kind of file, and OSError."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise UserError(f"{path}: not a {cls.NAME} of this version ({error.errors()[0]['msg']}){fix}") from None

    def write(self, root: Path, path: Path) -> Self:
        keep(root, path, self.model_dump_json(indent=1).encode())
        return self


def keep(root: Path, path: Path, content: bytes) -> Path:
    """Write a file of a root atomically. If the root is on object storage, upload the file."""
    write_durably(path, content)
    if mirror := mirror_of(root):
        mirror.push(path)
    return path


def set_aside(root: Path, path: Path) -> Path:
    """Move a damaged file or folder to `.damaged`, and return its new path."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    target = linkless(root, f"{DAMAGED}/{moment}") / path.relative_to(root)
    target.parent.mkdir(parents=True)
    os.rename(path, target)
    return target


# ---- overrides: verdicts by persons, which replace the grader's verdicts

OVERRIDES = "overrides"


def put_overrides(root: Path, text: str) -> Path:
    """Write a text as the active overrides, `overrides/<time>.jsonl`. An empty text ends all overrides."""
    newest = max((int(path.stem) for path in override_files(root) if path.stem.isdecimal()), default=0)
    # the name must be later than all others, even if the clock was set back
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


# ---- the register of studies, `register/studies.jsonl`
#
# Each line has question, decision rule, names and date of a study, and is written before anything is sampled. It has
# the SHA-256 of the line before it, so a changed, removed or inserted line breaks the chain.

REGISTER = "register"


class Entry(Record):
    """A registered study. sampled: whether the store already had rollouts of the study. settings: the study's file.
    before: SHA-256 of the line before; empty in the first line."""

    NAME = "entry of the register"
    study: str
    question: str
    rule: str
    names: tuple[str, ...]
    at: Moment
    sampled: bool
    settings: str
    before: str = ""


def register_path(root: Path) -> Path:
    return root / REGISTER / "studies.jsonl"


def entries(root: Path) -> list[Entry]:
    """Return all entries, oldest first. Raise UserError as `read_register` does."""
    if mirror := mirror_of(root):
        mirror.sync(REGISTER)
    path = register_path(root)
    return read_register(path) if path.exists() else []


def read_register(path: Path) -> list[Entry]:
    """Return the entries of a file. Raise UserError for a line that is no entry or breaks the chain."""
    lines = path.read_bytes().splitlines()
    found = []
    for number, (before, line) in enumerate(pairwise([b"", *lines]), 1):
        try:
            found.append(Entry.model_validate_json(line))
        except ValidationError as error:
            raise UserError(f"{path}, line {number}: not a valid {Entry.NAME} ({error.errors()[0]['msg']})") from None
        if found[-1].before != digest(before):
            raise UserError(f"{path}, line {number}: an earlier entry of this file was changed, removed or inserted")
    return found


def register(root: Path, entry: Entry) -> str:
    """Append an entry; return its SHA-256."""
    entries(root)  # raises an error if the chain is broken
    path = register_path(root)
    former = path.read_bytes() if path.exists() else b""
    last = former.splitlines()[-1] if former else b""
    line = entry.model_copy(update={"before": digest(last)}).model_dump_json().encode()
    keep(root, path, former + line + b"\n")
    return digest(line)


def digest(line: bytes) -> str:
    return sha256(line).hexdigest() if line else ""


# ---- nightly re-evaluations of adapters: one file per night and adapter, which never changes

NIGHTLY = "nights"
#: The last night of every adapter.
NIGHTS = nullable(
    "adapter str, state str, found str, at str, evaluated real, tonight real, expected real, low real, high real"
)


class Night(Record):
    """The re-evaluation of one adapter in one night.

    - number: how many nights this adapter has had, from 1.
    - environment: versions and hardware of sampling and grading. as_evaluated: whether the evaluation had the same.
    - drawn: the rollouts that were sampled under `seed`: none, those of the evaluation again (`same`), of a few
      problems (`canary`) or of all (`whole`).
    - problems, correct: counts of the new rollouts, by the environment's grader. z: the statistic of the scan.
    - evaluated: accuracy at the evaluation, by tonight's grader.
    - tonight, expected, low, high: accuracy; the accuracy expected from earlier nights on the same problems; the range
      of 95 % of nights without a change. None without new rollouts.
    - found: the result of the night as a sentence.
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

    def keep(self, root: Path) -> Self:
        return self.write(root, root / NIGHTLY / f"{_named(self.adapter)}-{self.number:05}.json")


def _named(adapter: str) -> str:
    return sha256(adapter.encode()).hexdigest()[:16]


def nights_of(root: Path, adapter: str) -> list[Night]:
    """Return all nights of an adapter, oldest first. Raise UserError if a record cannot be read."""
    if mirror := mirror_of(root):
        mirror.follow(NIGHTLY)
    return [Night.read(path) for path in sorted((root / NIGHTLY).glob(f"{_named(adapter)}-*.json"))]


def last_nights(root: Path) -> pa.Table:
    """Return the last night of every adapter, first those with drift. Schema: NIGHTS. Errors: see nights_of."""
    if mirror := mirror_of(root):
        mirror.follow(NIGHTLY)
    last = {path.stem.partition("-")[0]: path for path in files_in(root / NIGHTLY, ".json")}
    nights = sorted(
        (Night.read(path) for path in last.values()), key=lambda night: (night.state != "drifted", night.adapter)
    )
    return pa.Table.from_pylist([night.model_dump(include=set(NIGHTS.names)) for night in nights], schema=NIGHTS)

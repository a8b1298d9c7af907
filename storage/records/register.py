"""The register of studies: question, decision rule, names and date of each, written before anything is sampled.

`<root>/register/studies.jsonl` holds an entry a line. Each entry has the SHA-256 of the line before it, so a changed,
removed or inserted entry breaks the chain.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from pydantic import ValidationError

from storage.artifacts.manifest import Moment
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.record import Record, keep

FOLDER = "register"


class Entry(Record):
    """sampled: whether the store held rollouts of the study already. settings: its file. before: SHA-256 of the line
    before, empty for the first."""

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
    return root / FOLDER / "studies.jsonl"


def entries(root: Path) -> list[Entry]:
    """Return all entries, oldest first. Errors: see `read_register`."""
    if mirror := mirror_of(root):
        mirror.sync(FOLDER)
    path = register_path(root)
    return read_register(path) if path.exists() else []


def read_register(path: Path) -> list[Entry]:
    """Errors: UserError for a line that is no entry, or that does not follow from the line before."""
    lines = path.read_bytes().splitlines()
    found = []
    for number, (before, line) in enumerate(pairwise([b"", *lines]), 1):
        try:
            found.append(Entry.model_validate_json(line))
        except ValidationError as error:
            raise UserError(f"{path}, line {number}: no {Entry.NAME} ({error.errors()[0]['msg']})") from None
        if found[-1].before != digest(before):
            raise UserError(f"{path}, line {number}: an entry before it was changed, removed or inserted")
    return found


def register(root: Path, entry: Entry) -> str:
    """Append an entry; return its SHA-256."""
    entries(root)  # a broken chain is not continued
    path = register_path(root)
    former = path.read_bytes() if path.exists() else b""
    last = former.splitlines()[-1] if former else b""
    line = entry.model_copy(update={"before": digest(last)}).model_dump_json().encode()
    keep(root, path, former + line + b"\n")
    return digest(line)


def digest(line: bytes) -> str:
    return sha256(line).hexdigest() if line else ""

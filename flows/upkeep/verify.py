"""Verify a root: every artifact, ledger shard and record is read whole and compared with what was noted of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
from pydantic import ValidationError

from flows.study.prices import FILE as PRICES
from flows.study.prices import team_prices
from storage.artifacts.manifest import parse_manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.ledger import ABOUT, Ledger, examine_shard
from storage.mirror import mirror_of
from storage.records.decisions import override_files, pin, read_pin
from storage.records.drift import DriftNote
from storage.records.notes import noted
from storage.records.record import put_back, set_aside
from storage.records.runs import read_record, record_paths
from storage.records.spending import read_charge
from tasks.domain.grading.grading import read_overrides

DAMAGE = pa.schema([("what", pa.string()), ("path", pa.string()), ("said", pa.string()), ("set_aside", pa.string())])
#: What the system says of a file that lacks something; anything else is of the machine, the network or the reader.
OF_THE_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO})


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was examined. said: what is wrong with it; empty if nothing is. movable: whether that is damage,
    and can be made or said again without it."""

    what: str
    path: Path
    said: str
    movable: bool = True


@dataclass(frozen=True, slots=True)
class Verified:
    """damage: schema DAMAGE. examined: how many things were read."""

    damage: pa.Table
    examined: int


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing to examine. look: raises for what is wrong with it. needed: nobody could say it again."""

    what: str
    path: Path
    look: Callable[[Path], object]
    needed: bool = False

    def examined(self) -> Item:
        try:
            self.look(self.path)
        except (UserError, OSError, ValueError) as error:
            if _gone(self.path):
                return Item(self.what, self.path, "")  # collected, removed or replaced while it was read
            movable = not self.needed and _of_the_file(error)
            return Item(self.what, self.path, _in_words(error), movable)
        return Item(self.what, self.path, "")


def verify(root: Path, *, repair: bool = False) -> Verified:
    """repair: move what is damaged to `.damaged`; the same command as before then makes or samples it again. Of a
    journal of charges the lines that can be read stay, of a pin that it holds. What cannot be read for other reasons
    than its content stays where it is.

    Errors: UserError if there is no root.
    """
    if not root.is_dir():
        raise UserError(f"root {root}: is no folder, so there is nothing to verify")
    examined, rows = 0, []
    for thing in things(root):
        examined += 1
        # looked at twice: a run may replace a thing between the reading of two of its files
        if thing.examined().said and (item := thing.examined()).said:
            moved = _repaired(root, item) if repair and item.movable else None
            where = str(moved.relative_to(root)) if moved else None
            path = str(item.path.relative_to(root))
            rows.append({"what": item.what, "path": path, "said": item.said, "set_aside": where})
    return Verified(pa.Table.from_pylist(rows, schema=DAMAGE), examined)


def _repaired(root: Path, item: Item) -> Path:
    """Where it went."""
    moved = set_aside(root, item.path)
    if item.what == "charges":  # money that was paid stays counted
        put_back(item.path, b"".join(_readable(moved)))
    if item.what == "pin" and (ref := Ref.named(item.path.stem)):  # what it holds is its name
        pin(root, ref, f"somebody's reason is not known any more; what is left of it: {moved.relative_to(root)}")
    return moved


def items(root: Path) -> Iterator[Item]:
    """Everything under the root, examined."""
    return (thing.examined() for thing in things(root))


def things(root: Path) -> Iterator[Thing]:
    """Everything under the root, and folders that cannot be looked into."""
    store, ledger, closed = Store(root), Ledger(root), list[OSError]()
    for _ in os.walk(root, onerror=closed.append):
        pass
    yield from (Thing("folder", Path(error.filename), os.listdir, needed=True) for error in closed)
    if mirror := mirror_of(root):
        for ref in store.refs():
            mirror.refresh(ref, now=True)
    for path in sorted(root.glob(f"[a-z]*/*-*/{MANIFEST}")):
        if (ref := Ref.named(path.parent.name)) and ref.kind == path.parent.parent.name:
            yield Thing("artifact", path.parent, lambda folder, ref=ref: _artifact(store, ref, folder / MANIFEST))
    for path in ledger.shard_paths():
        yield Thing("shard", path, examine_shard)
    for path in sorted((root / "ledger").glob(f"*/*/{ABOUT}")):
        yield Thing("account", path, lambda file: dict(orjson.loads(file.read_bytes())))
    for path in record_paths(root):
        yield Thing("run", path, read_record)
    for path in sorted((root / "runs").glob("*.jsonl")):
        yield Thing("notes", path, noted, needed=not path.with_suffix(".json").exists())
    for path in sorted((root / "pins").glob("*.json")):
        yield Thing("pin", path, read_pin)
    for path in sorted((root / "spending").glob("*/*.jsonl")):
        yield Thing("charges", path, _journal)
    for path in sorted((root / "drift").glob("*.json")):
        yield Thing("drift", path, lambda file: DriftNote.model_validate_json(file.read_bytes()))
    for path in override_files(root):
        yield Thing("overrides", path, lambda file: read_overrides(file.read_text(), str(file)), needed=True)
    if (path := root / PRICES).exists() or path.is_symlink():
        yield Thing("prices", path, lambda _: team_prices(root), needed=True)


def _artifact(store: Store, ref: Ref, manifest: Path) -> None:
    found = parse_manifest(manifest.read_bytes(), str(manifest))
    if found.ref != ref:
        raise UserError(f"{manifest}: the manifest of {found.ref}")
    store.examine(found)


def _in_words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"no record of this version ({error.errors()[0]['msg']})"
    return str(error)


def _gone(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _of_the_file(error: BaseException | None) -> bool:
    """Whether a thing's content is what is wrong. A reader without permission, a network share that went away and too
    many open files are no damage of what was paid for."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and error.errno not in OF_THE_FILE:
            return False
        error = error.__cause__ or error.__context__
    return True


def _readable(journal: Path) -> Iterator[bytes]:
    for line in journal.read_bytes().splitlines(keepends=True):
        try:
            read_charge(line)
        except ValueError:
            continue
        yield line


def _journal(path: Path) -> None:
    """A last line that a crash tore is no damage: it is left out of every sum."""
    for number, line in enumerate(path.read_bytes().splitlines()[:-1], 1):
        try:
            read_charge(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None

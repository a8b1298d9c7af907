"""Verify a root: every artifact, ledger shard and record is read whole and compared with what was noted of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
from pydantic import ValidationError

from storage.artifacts.manifest import Manifest, parse_manifest
from storage.artifacts.store import MANIFEST, Store
from storage.durable import write_durably
from storage.errors import UserError
from storage.ledger import ABOUT, Ledger
from storage.mirror import mirror_of
from storage.records.damage import set_aside
from storage.records.pins import Pin
from storage.records.runs import Run, record_paths
from storage.shards import examine_shard

DAMAGE = pa.schema([("what", pa.string()), ("path", pa.string()), ("said", pa.string()), ("set_aside", pa.string())])


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was examined. said: what is wrong with it; empty if nothing is."""

    what: str
    path: Path
    said: str


@dataclass(frozen=True, slots=True)
class Verified:
    """damage: schema DAMAGE. examined: how many things were read."""

    damage: pa.Table
    examined: int


def verify(root: Path, *, repair: bool = False) -> Verified:
    """repair: move what is damaged to `.damaged`; the same command as before then makes or samples it again. Of a
    journal of charges the lines that can be read stay.

    Errors: UserError if there is no root.
    """
    if not root.is_dir():
        raise UserError(f"root {root}: is no folder, so there is nothing to verify")
    examined, rows = 0, []
    for item in items(root):
        examined += 1
        if item.said:
            moved = set_aside(root, item.path) if repair else None
            if moved and item.what == "charges":  # money that was paid stays counted
                write_durably(item.path, b"".join(_readable(moved)))
            where = str(moved.relative_to(root)) if moved else None
            path = str(item.path.relative_to(root))
            rows.append({"what": item.what, "path": path, "said": item.said, "set_aside": where})
    return Verified(pa.Table.from_pylist(rows, schema=DAMAGE), examined)


def items(root: Path) -> Iterator[Item]:
    """Everything under the root, examined."""
    store, ledger = Store(root), Ledger(root)
    if mirror := mirror_of(root):
        for ref in store.refs():
            mirror.refresh(ref, now=True)
    for path in sorted(root.glob(f"[a-z]*/*-*/{MANIFEST}")):
        if path.parent.parent.name != "ledger":
            yield Item("artifact", path.parent, _said(lambda p=path: store.examine(_manifest(p))))
    for path in ledger.shard_paths():
        yield Item("shard", path, _said(lambda p=path: examine_shard(p)))
    for path in sorted((root / "ledger").glob(f"*/*/{ABOUT}")):
        yield Item("account", path, _said(lambda p=path: orjson.loads(p.read_bytes())))
    for path in record_paths(root):
        yield Item("run", path, _said(lambda p=path: Run.model_validate_json(p.read_bytes())))
    for path in sorted((root / "pins").glob("*.json")):
        yield Item("pin", path, _said(lambda p=path: Pin.model_validate_json(p.read_bytes())))
    for path in sorted((root / "spending").glob("*/*.jsonl")):
        yield Item("charges", path, _torn(path))


def _manifest(path: Path) -> Manifest:
    return parse_manifest(path.read_bytes(), str(path))


def _said(look: Callable[[], object]) -> str:
    try:
        look()
    except ValidationError as error:
        return f"no record of this version ({error.errors()[0]['msg']})"
    except (UserError, OSError, orjson.JSONDecodeError) as error:
        return str(error)
    return ""


def _readable(journal: Path) -> Iterator[bytes]:
    for line in journal.read_bytes().splitlines(keepends=True):
        if not _said(lambda text=line: orjson.loads(text)):
            yield line


def _torn(path: Path) -> str:
    """A last line that a crash tore is no damage: it is left out of every sum."""
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines[:-1], 1):
        if said := _said(lambda text=line: orjson.loads(text)):
            return f"line {number}: {said}"
    return ""

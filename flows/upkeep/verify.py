"""Verify a root: read every artifact, ledger shard and record, and compare it with checksums and schema."""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
from pydantic import ValidationError

from flows.study.prices import team_prices
from storage.artifacts.manifest import parse_manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import MANIFEST, Store
from storage.errors import UserError
from storage.ledger import ABOUT, Ledger, examine_shard
from storage.mirror import mirror_of
from storage.records.record import REGISTER, Night, override_files, read_register, set_aside
from storage.records.runs import noted, read_record, record_paths
from storage.records.spending import PRICES, Charge
from tasks.domain.grading.grading import read_overrides

DAMAGE = pa.schema([("what", pa.string()), ("path", pa.string()), ("problem", pa.string()), ("moved_to", pa.string())])
#: System errors that are about a file itself. Others are about the machine, the network or the reader.
OF_THE_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO})
#: Kinds of files that no command makes again.
NEEDED = ("charges", "register", "overrides", "prices")


@dataclass(frozen=True, slots=True)
class Thing:
    """One file or artifact to check. look: raises an error if it is damaged. needed: no command makes it again."""

    what: str
    path: Path
    look: Callable[[Path], object]
    needed: bool = False

    def fault(self) -> Exception | None:
        try:
            self.look(self.path)
        except (UserError, OSError, ValueError) as error:
            # if the file does not exist now, it was removed or replaced while it was read
            return error if os.path.lexists(self.path) else None
        return None


def verify(root: Path, *, repair: bool = False) -> tuple[pa.Table, int]:
    """Return the damaged files (schema DAMAGE), and how many files and artifacts were read. Raise UserError if the root
    does not exist. repair: move damaged files to `.damaged`, so that the original command makes them again. Files that
    are unreadable for other reasons stay, and so do journals of charges, whose readable lines still count."""
    if not root.is_dir():
        raise UserError(f"root {root} is not a folder, so there is nothing to verify")
    examined, rows = 0, []
    for thing in things(root):
        examined += 1
        # read twice, because a run may replace an artifact while it is read
        if thing.fault() and (fault := thing.fault()):
            movable = repair and not thing.needed and _of_the_file(fault)
            moved = str(set_aside(root, thing.path).relative_to(root)) if movable else None
            path = str(thing.path.relative_to(root))
            rows.append({"what": thing.what, "path": path, "problem": str(fault), "moved_to": moved})
    return pa.Table.from_pylist(rows, schema=DAMAGE), examined


def things(root: Path) -> Iterator[Thing]:
    """Yield every file and artifact of the root that can be checked, and every unreadable folder."""
    store, closed = Store(root), list[OSError]()
    for _ in os.walk(root, onerror=closed.append):
        pass
    yield from (Thing("folder", Path(error.filename), os.listdir, needed=True) for error in closed)
    if mirror := mirror_of(root):
        for ref in store.refs():
            mirror.refresh(ref, now=True)
    for path in sorted(root.glob(f"[a-z]*/*-*/{MANIFEST}")):
        if (ref := Ref.named(path.parent.name)) and ref.kind == path.parent.parent.name:
            yield Thing("artifact", path.parent, lambda folder, ref=ref: _artifact(store, ref, folder / MANIFEST))
    found = {
        ("shard", examine_shard): Ledger(root).shard_paths(),
        ("run", read_record): record_paths(root),
        ("account", _account): root.glob(f"ledger/*/*/{ABOUT}"),
        ("charges", _journal): root.glob("spending/*/*.jsonl"),
        ("night", Night.read): root.glob("nights/*.json"),
        ("register", read_register): root.glob(f"{REGISTER}/*.jsonl"),
        ("notes", noted): root.glob("runs/*.jsonl"),
        ("overrides", lambda file: read_overrides(file.read_text(), str(file))): override_files(root),
        ("prices", lambda _: team_prices(root)): (path for path in root.iterdir() if path.name == PRICES),
    }
    for (what, look), paths in found.items():
        for path in sorted(paths):
            needed = what in NEEDED or (what == "notes" and not path.with_suffix(".json").exists())
            yield Thing(what, path, look, needed)


def _account(path: Path) -> None:
    dict(orjson.loads(path.read_bytes()))


def _artifact(store: Store, ref: Ref, manifest: Path) -> None:
    found = parse_manifest(manifest.read_bytes(), str(manifest))
    if found.ref != ref:
        raise UserError(f"{manifest} is the manifest of another artifact, {found.ref}")
    store.examine(found)


def _of_the_file(error: BaseException | None) -> bool:
    """Return whether an error is about the content, and not about permissions, the network or too many open files."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and error.errno not in OF_THE_FILE:
            return False
        error = error.__cause__ or error.__context__
    return True


def _journal(path: Path) -> None:
    """Check the file of a run's costs. A last line that a crash cut off is not damage."""
    for number, line in enumerate(path.read_bytes().splitlines()[:-1], 1):
        try:
            Charge.model_validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number}: {error.errors()[0]['msg']}") from None

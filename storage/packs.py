"""Packs: what many small objects of a bucket hold, in a few objects, so that a new machine asks a few times.

A pack is a memory, never the truth: it says what objects held under an ETag. What the listing shows under another ETag,
or what no pack has, is asked for itself. Packs never change and are called by the digest of their content; one that is
gone or damaged is passed over, so writers that race, and crashes between two objects, cost requests alone.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import Notice, UserError
from storage.objects import CONNECTIONS, Objects

FOLDER = ".packs"
#: So many objects outside packs are packed, and so many packs may there be: more of them become one.
LOOSE, MOST = 6, 4
PACK = pa.schema([("name", pa.string()), ("etag", pa.string()), ("content", pa.binary())])
#: Folders of a root whose many objects are none of those that are packed.
BULKY = (".leases", ".work", "ledger", "spending")


@dataclass(frozen=True, slots=True)
class Small:
    """What an object held under an ETag."""

    name: str
    etag: str
    content: bytes


def packed(objects: Objects, packs: Iterable[str], wanted: Mapping[str, str]) -> dict[str, Small]:
    """What packs have of these objects. wanted: ETag by name."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        tables = pool.map(lambda name: _read(objects, name), packs)
        found = (one for table in tables for one in _rows(table, wanted))
        return {one.name: one for one in found}


def pack(objects: Objects, entries: Iterable[Small]) -> None:
    """Put these into a pack; of too many packs make one. What cannot be written is not packed: no answer changes."""
    with suppress(UserError):
        _put(objects, entries)
        there = objects.list(FOLDER)
        if len(there) > MOST:
            now = {name: one.etag for name, one in objects.list("", but=BULKY).items()}
            kept = _put(objects, packed(objects, there, now).values())
            objects.delete(*({*there} - {kept}))


def _put(objects: Objects, entries: Iterable[Small]) -> str:
    """The pack's name."""
    rows = sorted((asdict(entry) for entry in entries), key=lambda row: row["name"])
    pq.write_table(pa.Table.from_pylist(rows, schema=PACK), (to := io.BytesIO()), compression="zstd")
    objects.put(name := _called(to.getvalue()), to.getvalue())
    return name


def _called(content: bytes) -> str:
    return f"{FOLDER}/{sha256(content).hexdigest()[:32]}.parquet"


def _read(objects: Objects, name: str) -> pa.Table:
    """Schema: PACK; without rows for a pack that another writer made one of with others, and for a damaged one."""
    found = objects.get(name)
    if found is None:
        return PACK.empty_table()
    if _called(found[0]) != name:
        said = f"{objects.address}/{name}: not what was packed, passed over; what was in it is read one by one"
        warnings.warn(Notice(said), stacklevel=2)
        with suppress(UserError):
            objects.delete(name)
        return PACK.empty_table()
    return pq.read_table(io.BytesIO(found[0]))


def _rows(table: pa.Table, wanted: Mapping[str, str]) -> Iterator[Small]:
    for place, (name, etag) in enumerate(zip(table["name"].to_pylist(), table["etag"].to_pylist(), strict=True)):
        if wanted.get(name) == etag:
            yield Small(name, etag, table["content"][place].as_py())

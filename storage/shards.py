"""Shards of the ledger: Parquet files that never change, and where in those of one account each rollout's row lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import file_digest
from storage.errors import UserError
from storage.sql import query

#: Of a shard's sha256, in its name. Checksums of pages leave their headers out.
DIGEST_DIGITS = 16
#: Shards whose keys a process remembers.
SHARDS_KNOWN = 16_384
KEY = ["problem_id", "rollout"]


def read_shard(shard: Path, columns: list[str] | None = None) -> pa.Table:
    """Rows of one shard; columns that it is too old to have are left out. Errors: UserError that names it if it cannot
    be read whole."""
    try:
        with pq.ParquetFile(shard, page_checksum_verification=True) as file:
            there = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
            return file.read(columns=there)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            f"ledger shard {shard} cannot be read ({error}); `varband store verify --repair` sets it aside, and what"
            " was in it is sampled again"
        ) from None


def examine_shard(shard: Path) -> None:
    """Errors: UserError that names it if it is not what was written. Shards of before have no digest in their name."""
    read_shard(shard)
    written = shard.stem.rpartition("-")[2]
    if len(written) == DIGEST_DIGITS and not file_digest(shard).startswith(written):
        raise UserError(f"ledger shard {shard} is not what was written: a bit of it changed")


def joined(tables: list[pa.Table]) -> pa.Table | None:
    """Older shards lack columns that came later."""
    return pa.concat_tables(tables, promote_options="default") if tables else None


def keys_of(shard: Path) -> pa.Table:
    """problem_id and rollout of a shard's rows: read once, for a shard never changes. One that did is damaged."""
    found = shard.stat()
    return _keys_of(shard, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=SHARDS_KNOWN)
def _keys_of(shard: Path, size: int, changed: int) -> pa.Table:
    return read_shard(shard, KEY)


@dataclass(frozen=True, slots=True)
class Entries:
    """Where the rows of an account lie. Of an identity that was entered twice the first row counts.

    shards: oldest first. keys: columns of KEY and `place`, all rows of all shards one after another.
    """

    shards: Sequence[Path]
    keys: pa.Table

    @classmethod
    def of(cls, shards: Sequence[Path]) -> Entries:
        keys = joined([keys_of(shard) for shard in shards])
        if keys is None:
            keys = pa.table({"problem_id": pa.array([], pa.string()), "rollout": pa.array([], pa.int32())})
        return cls(shards, keys.append_column("place", pa.array(np.arange(keys.num_rows))))

    def lacking(self, asked: pa.Table) -> list[int]:
        """Which of these are not entered. asked: columns of KEY and `nth`."""
        # joined before what is left over is asked for: the smaller side is what is held
        there = "select nth from keys join asked using (problem_id, rollout)"
        said = query(f"select nth from asked anti join ({there}) using (nth)", asked=asked, keys=self._near(asked))
        return sorted(said["nth"].to_pylist())

    def rows(self, asked: pa.Table, columns: list[str] | None = None) -> pa.Table | None:
        """Rows of these that are entered, with the columns of `asked` that are not of KEY, in the order of `nth`; null
        for none. No shard without any of them is read."""
        found = query(
            "select min(place) as place, asked.* from asked join keys using (problem_id, rollout) group by all"
            " order by place",
            asked=asked,
            keys=self._near(asked),
        )
        rows = joined(list(self._taken(found["place"].to_numpy(), columns)))
        if rows is None:
            return None
        for name in asked.column_names:
            if name not in KEY:
                rows = rows.append_column(name, found[name])
        return rows.sort_by("nth")

    def _near(self, asked: pa.Table) -> pa.Table:
        """Keys of the problems that are asked for: of a million a database may hold the wrong side of a join."""
        return self.keys.filter(pc.field("problem_id").isin(asked["problem_id"].unique()))

    def _taken(self, place_N: np.ndarray, columns: list[str] | None) -> Iterator[pa.Table]:
        ends = np.cumsum([keys_of(shard).num_rows for shard in self.shards])
        shard_N = np.searchsorted(ends, place_N, side="right")
        for shard in np.unique(shard_N):
            rows, mine_N = read_shard(self.shards[shard], columns), place_N[shard_N == shard]
            yield rows.take(pa.array(mine_N - (ends[shard] - rows.num_rows)))

"""The ledger: every rollout that was ever paid for, in append-only Parquet shards.

A rollout's identity is (policy, sampling parameters, problem_id, rollout index). Shards are in
`ledger/<policy>/<sampling>/`. A shard is written atomically and never changes. If two samplers store the same identity,
the first row counts. Further rows of the identity stay in the shards, and `duplicates` counts them.
"""

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import file_digest, fingerprint
from storage.artifacts.rows import columns, joined
from storage.artifacts.schemas import ROLLOUT
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.roots import sync, write_durably
from storage.sql import query

#: The columns of the ledger: those of a rollout, and those that training needs.
LEDGER = joined(
    ROLLOUT,
    columns(
        "gold str, request_seed big, prompt_ids ints, token_ids ints, logprobs reals, engine str",
        "reading str?",  # digest of the parser: tags and answer form of the scaffold
        "verdict_elsewhere bool?",  # of the tool that sampled an imported rollout
    ),
)
ABOUT = "about.json"
#: Digits of a shard's sha256 in its name. Parquet's page checksums do not cover headers.
DIGEST_DIGITS = 16
#: Number of shards whose keys are kept in memory.
SHARDS_KNOWN = 16_384
KEY = ["problem_id", "rollout"]
#: Columns whose values rarely repeat.
UNIQUE = ("completion", "trace", "prompt_ids", "token_ids", "logprobs")


@dataclass(frozen=True, slots=True)
class Account:
    """The part of the ledger for one policy and one set of sampling parameters."""

    policy: str
    sampling: str

    @classmethod
    def of(cls, policy: object, sampling: object) -> Self:
        return cls(fingerprint(policy), fingerprint(sampling))


class Ledger:
    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._mirror = mirror_of(self.root)

    def folder(self, account: Account) -> Path:
        return self.root / "ledger" / account.policy / account.sampling

    def shards(self, account: Account) -> list[Path]:
        """Return the shards of an account, oldest first. The name of a shard starts with the time of writing."""
        return self._found(f"ledger/{account.policy}/{account.sampling}", "shard-*.parquet")

    def shard_paths(self) -> list[Path]:
        return self._found("ledger", "*/*/shard-*.parquet")

    def _found(self, folder: str, pattern: str) -> list[Path]:
        if self._mirror:
            self._mirror.sync(folder)
        return sorted((self.root / folder).glob(pattern))

    def append(self, account: Account, rows: pa.Table, about: dict[str, object], *, unchecked: bool = False) -> Path:
        """Write rows durably. about: a readable description of the account. unchecked: the rows stay on this machine
        and do not count until `admit` is called."""
        folder = self.folder(account)
        aside = self.root / ".scratch" / f"shard-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            aside.parent.mkdir(parents=True, exist_ok=True)
            if not (folder / ABOUT).exists():  # written first, so that a crash leaves no rows without it
                write_durably(folder / ABOUT, orjson.dumps(about))
                if self._mirror:
                    self._mirror.push(folder / ABOUT)
            pq.write_table(
                rows,
                aside,
                compression="zstd",
                compression_level=1,
                write_page_checksum=True,
                # dictionaries would make writing tokens and texts four times as slow
                use_dictionary=[n for n in rows.schema.names if n not in UNIQUE],  # type: ignore[arg-type]
            )
            sync(aside)
            kind = "unchecked" if unchecked else "shard"
            target = folder / f"{kind}-{time.time_ns():020d}-{file_digest(aside)[:DIGEST_DIGITS]}.parquet"
            os.rename(aside, target)
            sync(folder)
            if self._mirror and not unchecked:
                self._mirror.push(target)
            return target
        finally:
            aside.unlink(missing_ok=True)

    def unchecked(self, account: Account) -> list[Path]:
        """Return the shards that do not count yet, oldest first."""
        return sorted(self.folder(account).glob("unchecked-*.parquet"))

    def admit(self, shard: Path) -> None:
        """Let the rows of an unchecked shard count."""
        target = shard.rename(shard.with_name(shard.name.replace("unchecked", "shard", 1)))
        sync(target.parent)
        if self._mirror:
            self._mirror.push(target)

    def rows(self, account: Account, columns: list[str] | None = None) -> pa.Table | None:
        """Return all rows with duplicates, oldest shard first; None if there are none."""
        return _joined([read_shard(shard, columns) for shard in self.shards(account)])

    def entries(self, account: Account) -> "Entries":
        return Entries.of(self.shards(account))

    def keys(self, account: Account) -> set[tuple[str, int]]:
        """Return (problem_id, rollout) of every stored rollout."""
        keys = self.entries(account).keys
        return set(zip(keys["problem_id"].to_pylist(), keys["rollout"].to_pylist(), strict=True))

    def read(self, account: Account) -> pa.Table | None:
        """Return one row per identity, the first that was written, oldest first; None if there are none."""
        entries = self.entries(account)
        first = query(
            "select problem_id, rollout, min(place) as nth from keys group by problem_id, rollout", keys=entries.keys
        )
        rows = entries.rows(first)
        return None if rows is None else rows.drop(["nth"])

    def duplicates(self, account: Account) -> int:
        """Return the number of rollouts that two samplers both paid for."""
        return self.entries(account).keys.num_rows - len(self.keys(account))

    def accounts(self) -> list[tuple[Account, dict[str, object]]]:
        found = self._found("ledger", f"*/*/{ABOUT}")
        return [(Account(p.parent.parent.name, p.parent.name), orjson.loads(p.read_bytes())) for p in found]


def read_shard(shard: Path, columns: list[str] | None = None) -> pa.Table:
    """Return the rows of a shard. Columns that an old shard lacks are missing. Raise UserError for a damaged shard."""
    try:
        with pq.ParquetFile(shard, page_checksum_verification=True) as file:
            there = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
            return file.read(columns=there)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            f"ledger shard {shard} cannot be read ({error}); `varband store verify --repair` moves it away, and its"
            " rollouts are sampled again"
        ) from None


def examine_shard(shard: Path) -> None:
    """Raise UserError if a shard changed after it was written. Shards of early versions have no digest in the name."""
    read_shard(shard)
    written = shard.stem.rpartition("-")[2]
    if len(written) == DIGEST_DIGITS and not file_digest(shard).startswith(written):
        raise UserError(f"ledger shard {shard} is damaged: its checksum differs")


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    """Concatenate shards. A column that an older shard lacks becomes null there."""
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _keys_of(shard: Path) -> pa.Table:
    """Return the KEY columns of a shard's rows, cached by the file's size and time."""
    found = shard.stat()
    return _remembered_keys(shard, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=SHARDS_KNOWN)
def _remembered_keys(shard: Path, size: int, changed: int) -> pa.Table:
    return read_shard(shard, KEY)


@dataclass(frozen=True, slots=True)
class Entries:
    """Where an account's rows are. If an identity occurs twice, the first row counts. shards: oldest first. keys: KEY
    columns and `place`, over the rows of all shards in order."""

    shards: Sequence[Path]
    keys: pa.Table

    @classmethod
    def of(cls, shards: Sequence[Path]) -> Self:
        keys = _joined([_keys_of(shard) for shard in shards])
        if keys is None:
            keys = pa.table({"problem_id": pa.array([], pa.string()), "rollout": pa.array([], pa.int32())})
        return cls(shards, keys.append_column("place", pa.array(np.arange(keys.num_rows))))

    def lacking(self, wanted: pa.Table) -> list[int]:
        """Return the `nth` of the wanted rollouts that are missing. wanted: KEY columns and `nth`."""
        # a join and then an anti-join, so that DuckDB keeps only the smaller side in memory
        there = "select nth from keys join wanted using (problem_id, rollout)"
        found = query(f"select nth from wanted anti join ({there}) using (nth)", wanted=wanted, keys=self._near(wanted))
        return sorted(found["nth"].to_pylist())

    def rows(self, wanted: pa.Table, columns: list[str] | None = None) -> pa.Table | None:
        """Return the wanted rollouts that exist, in the order of `nth`, with the other columns of `wanted`; None if
        none exists. Only shards with such rows are read."""
        found = query(
            "select min(place) as place, wanted.* from wanted join keys using (problem_id, rollout) group by all"
            " order by place",
            wanted=wanted,
            keys=self._near(wanted),
        )
        rows = _joined(list(self._taken(found["place"].to_numpy(), columns)))
        if rows is None:
            return None
        for name in wanted.column_names:
            if name not in KEY:
                rows = rows.append_column(name, found[name])
        return rows.sort_by("nth")

    def _near(self, wanted: pa.Table) -> pa.Table:
        """Return the keys of the wanted problems only. The keys of all problems may be a million rows."""
        return self.keys.filter(pc.field("problem_id").isin(wanted["problem_id"].unique()))

    def _taken(self, place_N: np.ndarray, columns: list[str] | None) -> Iterator[pa.Table]:
        ends = np.cumsum([_keys_of(shard).num_rows for shard in self.shards])
        shard_N = np.searchsorted(ends, place_N, side="right")
        for shard in np.unique(shard_N):
            rows, mine_N = read_shard(self.shards[shard], columns), place_N[shard_N == shard]
            yield rows.take(pa.array(mine_N - (ends[shard] - rows.num_rows)))

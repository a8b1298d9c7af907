"""The ledger: every rollout ever paid for, in append-only Parquet shards.

A rollout's identity is (policy, sampling parameters, problem_id, rollout index). Shards live under
`ledger/<policy>/<sampling>/`; a shard appears whole (rename) and is never changed. If two samplers race, the
first row of an identity wins and the others are counted, never hidden.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import file_digest, fingerprint
from storage.durable import sync, write_durably
from storage.errors import NO_ROOM, UserError
from storage.mirror import mirror_of
from storage.sql import query

ABOUT = "about.json"
#: Of a shard's sha256, in its name. Checksums of pages leave their headers out.
DIGEST_DIGITS = 16
#: Shards whose keys a process remembers.
SHARDS_KNOWN = 16_384
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Account:
    """Where the rollouts of one policy under one set of sampling parameters are entered."""

    policy: str
    sampling: str
    former: Account | None = field(default=None, compare=False)

    @classmethod
    def of(cls, policy: object, sampling: object, former: object = None) -> Account:
        """former: what the policy was called before; what is entered there counts, new rows are entered here."""
        drawn = fingerprint(sampling)
        return cls(fingerprint(policy), drawn, None if former is None else cls(fingerprint(former), drawn))


class Ledger:
    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._mirror = mirror_of(self.root)

    def folder(self, account: Account) -> Path:
        return self.root / "ledger" / account.policy / account.sampling

    def shards(self, account: Account) -> list[Path]:
        """Oldest first: the name starts with the time of writing. Those of a former account are among them."""
        if self._mirror:
            self._mirror.sync(f"ledger/{account.policy}/{account.sampling}")
        before = self.shards(account.former) if account.former else []
        return sorted([*before, *self.folder(account).glob("shard-*.parquet")], key=lambda shard: shard.name)

    def shard_paths(self) -> list[Path]:
        """Of every account."""
        return sorted((self.root / "ledger").glob("*/*/shard-*.parquet"))

    def append(self, account: Account, rows: pa.Table, about: dict[str, object]) -> Path:
        """Make rows durable before anything is built on them. `about` says in words what the account is."""
        folder = self.folder(account)
        aside = self.root / ".scratch" / f"shard-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            aside.parent.mkdir(parents=True, exist_ok=True)
            if not (folder / ABOUT).exists():
                write_durably(folder / ABOUT, orjson.dumps(about))
            pq.write_table(
                rows,
                aside,
                compression="zstd",
                compression_level=1,
                write_page_checksum=True,
                use_dictionary=_repetitive(rows.schema),  # type: ignore[arg-type]
            )
            sync(aside)
            target = folder / f"shard-{time.time_ns():020d}-{file_digest(aside)[:DIGEST_DIGITS]}.parquet"
            os.rename(aside, target)
            sync(folder)
            if self._mirror:
                self._mirror.push(target)
            return target
        except OSError as error:
            if error.errno in NO_ROOM:
                raise UserError(
                    f"ledger {folder}: rollouts could not be written ({error.strerror}); those of earlier shards are"
                    " kept: make room and run the same command again"
                ) from None
            raise
        finally:
            aside.unlink(missing_ok=True)

    def rows(self, account: Account, columns: list[str] | None = None) -> pa.Table | None:
        """All rows, oldest shard first, duplicates included; null if nothing was ever sampled."""
        return _joined([read_shard(shard, columns) for shard in self.shards(account)])

    def keys(self, account: Account) -> set[tuple[str, int]]:
        """(problem_id, rollout) of everything that was paid for."""
        return set().union(*map(keys_of, self.shards(account)))

    def read(self, account: Account, wanted: Set[Key] | None = None) -> pa.Table | None:
        """One row per identity, the first one written. wanted: read no shard without any of these."""
        shards = [s for s in self.shards(account) if wanted is None or not keys_of(s).isdisjoint(wanted)]
        rows = _joined([read_shard(shard) for shard in shards])
        if rows is None:
            return None
        numbered = rows.append_column("_order", pa.array(range(rows.num_rows), pa.int64()))
        first = query(
            "select min(_order) as first from numbered group by problem_id, rollout order by 1", numbered=numbered
        )
        return rows.take(first["first"])

    def duplicates(self, account: Account) -> int:
        """Rows beyond the first of their identity: what racing samplers paid twice."""
        rows = self.rows(account, ["problem_id", "rollout"])
        return 0 if rows is None else rows.num_rows - len(self.keys(account))

    def accounts(self) -> list[tuple[Account, dict[str, object]]]:
        """Every account with what is known of it."""
        if self._mirror:
            self._mirror.sync("ledger")
        found = sorted((self.root / "ledger").glob(f"*/*/{ABOUT}"))
        return [(Account(p.parent.parent.name, p.parent.name), orjson.loads(p.read_bytes())) for p in found]


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    """Older shards lack columns that came later."""
    return pa.concat_tables(tables, promote_options="default") if tables else None


def keys_of(shard: Path) -> frozenset[Key]:
    """(problem_id, rollout) of a shard's rows: read once, for a shard never changes. One that did is damaged."""
    found = shard.stat()
    return _keys_of(shard, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=SHARDS_KNOWN)
def _keys_of(shard: Path, size: int, changed: int) -> frozenset[Key]:
    rows = read_shard(shard, ["problem_id", "rollout"])
    return frozenset(zip(rows["problem_id"].to_pylist(), rows["rollout"].to_pylist(), strict=True))


def read_shard(shard: Path, columns: list[str] | None = None) -> pa.Table:
    """Rows of one shard. Errors: UserError that names it if it cannot be read whole."""
    try:
        return pq.ParquetFile(shard, page_checksum_verification=True).read(columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            f"ledger shard {shard} cannot be read ({error}); `varband verify --repair` sets it aside, and what was"
            " in it is sampled again"
        ) from None


def examine_shard(shard: Path) -> None:
    """Errors: UserError that names it if it is not what was written. Shards of before have no digest in their name."""
    read_shard(shard)
    written = shard.stem.rpartition("-")[2]
    if len(written) == DIGEST_DIGITS and not file_digest(shard).startswith(written):
        raise UserError(f"ledger shard {shard} is not what was written: a bit of it changed")


def _repetitive(schema: pa.Schema) -> list[str]:
    """Columns worth a dictionary. Tokens, log-probs and texts do not repeat: one for them slows writing fourfold."""
    return [f.name for f in schema if not pa.types.is_list(f.type) and f.name not in ("completion", "trace")]

"""The ledger: every rollout ever paid for, in append-only Parquet shards.

A rollout's identity is (policy, sampling parameters, problem_id, rollout index). Shards live under
`ledger/<policy>/<sampling>/`; a shard appears whole (rename) and is never changed. If two samplers race, the
first row of an identity wins and the others are counted, never hidden.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import file_digest, fingerprint
from storage.durable import sync, write_durably
from storage.errors import NO_ROOM, UserError, way_out
from storage.mirror import mirror_of
from storage.shards import DIGEST_DIGITS, Entries, joined, read_shard
from storage.sql import query

ABOUT = "about.json"


@dataclass(frozen=True, slots=True)
class Account:
    """Where the rollouts of one policy under one set of sampling parameters are entered."""

    policy: str
    sampling: str

    @classmethod
    def of(cls, policy: object, sampling: object) -> Account:
        return cls(fingerprint(policy), fingerprint(sampling))


class Ledger:
    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._mirror = mirror_of(self.root)

    def folder(self, account: Account) -> Path:
        return self.root / "ledger" / account.policy / account.sampling

    def shards(self, account: Account) -> list[Path]:
        """Oldest first: the name starts with the time of writing."""
        if self._mirror:
            self._mirror.sync(f"ledger/{account.policy}/{account.sampling}")
        return sorted(self.folder(account).glob("shard-*.parquet"))

    def shard_paths(self) -> list[Path]:
        """Of every account."""
        if self._mirror:
            self._mirror.sync("ledger")
        return sorted((self.root / "ledger").glob("*/*/shard-*.parquet"))

    def append(self, account: Account, rows: pa.Table, about: dict[str, object]) -> Path:
        """Make rows durable before anything is built on them. `about` says in words what the account is."""
        folder = self.folder(account)
        aside = self.root / ".scratch" / f"shard-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            aside.parent.mkdir(parents=True, exist_ok=True)
            if not (folder / ABOUT).exists():
                self._describe(account, about)
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
                    f" kept: {way_out(error.errno)} and run the same command again"
                ) from None
            raise
        finally:
            aside.unlink(missing_ok=True)

    def restore_words(self, account: Account, about: Callable[[], dict[str, object]]) -> None:
        """Say again what an account is that has shards and no words: they were damaged, or never left their machine.
        about: asked in that case alone."""
        folder = self.folder(account)
        if not (folder / ABOUT).exists() and any(folder.glob("shard-*.parquet")):
            self._describe(account, about())

    def _describe(self, account: Account, about: dict[str, object]) -> None:
        """Before its first rows: a machine that is lost between the two leaves no rows that nobody finds."""
        path = self.folder(account) / ABOUT
        write_durably(path, orjson.dumps(about))
        if self._mirror:
            self._mirror.push(path)

    def rows(self, account: Account, columns: list[str] | None = None) -> pa.Table | None:
        """All rows, oldest shard first, duplicates included; null if nothing was ever sampled."""
        return joined([read_shard(shard, columns) for shard in self.shards(account)])

    def entries(self, account: Account) -> Entries:
        """Where the rows of everything that was paid for lie."""
        return Entries.of(self.shards(account))

    def keys(self, account: Account) -> set[tuple[str, int]]:
        """(problem_id, rollout) of everything that was paid for."""
        keys = self.entries(account).keys
        return set(zip(keys["problem_id"].to_pylist(), keys["rollout"].to_pylist(), strict=True))

    def read(self, account: Account) -> pa.Table | None:
        """One row per identity, the first one written, oldest first."""
        entries = self.entries(account)
        first = query(
            "select problem_id, rollout, min(place) as nth from keys group by problem_id, rollout", keys=entries.keys
        )
        rows = entries.rows(first)
        return None if rows is None else rows.drop(["nth"])

    def duplicates(self, account: Account) -> int:
        """Rows beyond the first of their identity: what racing samplers paid twice."""
        return self.entries(account).keys.num_rows - len(self.keys(account))

    def accounts(self) -> list[tuple[Account, dict[str, object]]]:
        """Every account with what is known of it."""
        if self._mirror:
            self._mirror.sync("ledger")
        found = sorted((self.root / "ledger").glob(f"*/*/{ABOUT}"))
        return [(Account(p.parent.parent.name, p.parent.name), orjson.loads(p.read_bytes())) for p in found]


def _repetitive(schema: pa.Schema) -> list[str]:
    """Columns worth a dictionary. Tokens, log-probs and texts do not repeat: one for them slows writing fourfold."""
    return [f.name for f in schema if not pa.types.is_list(f.type) and f.name not in ("completion", "trace")]

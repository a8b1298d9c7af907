"""Paid once, kept for ever: shards appear whole, identities are unique, races are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from storage.errors import UserError
from storage.ledger import Account, Ledger

REPO = Path(__file__).parents[2]
ACCOUNT = Account.of({"arm": "panel"}, {"temperature": 1.0})


def rows(*keys: tuple[str, int], text: str = "x") -> pa.Table:
    return pa.table(
        {
            "problem_id": [k[0] for k in keys],
            "rollout": pa.array([k[1] for k in keys], pa.int32()),
            "completion": [text] * len(keys),
        }
    )


def test_nothing_sampled_is_null_not_empty(tmp_path: Path) -> None:
    assert Ledger(tmp_path).read(ACCOUNT) is None
    assert Ledger(tmp_path).keys(ACCOUNT) == set()


def test_first_row_wins_and_the_others_are_counted(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    book.append(ACCOUNT, rows(("a", 0), ("a", 1), text="first"), {"arm": "panel"})
    book.append(ACCOUNT, rows(("a", 1), ("b", 0), text="second"), {"arm": "panel"})
    assert book.keys(ACCOUNT) == {("a", 0), ("a", 1), ("b", 0)}
    assert book.duplicates(ACCOUNT) == 1
    table = book.read(ACCOUNT)
    assert table is not None
    assert table.to_pylist() == [
        {"problem_id": "a", "rollout": 0, "completion": "first"},
        {"problem_id": "a", "rollout": 1, "completion": "first"},
        {"problem_id": "b", "rollout": 0, "completion": "second"},
    ]
    assert book.accounts() == [(ACCOUNT, {"arm": "panel"})]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    shard = book.append(ACCOUNT, rows(*[("a", i) for i in range(1000)]), {})
    raw = bytearray(shard.read_bytes())
    raw[60] ^= 0xFF
    shard.write_bytes(raw)
    with pytest.raises(UserError, match="shard"):
        book.read(ACCOUNT)


WRITER = """
import sys, pyarrow as pa
from storage.ledger import Account, Ledger
book, account = Ledger(sys.argv[1]), Account.of({"arm": "panel"}, {"temperature": 1.0})
for i in range(100000):
    book.append(account, pa.table({"problem_id": ["p"] * 50, "rollout": pa.array(range(i * 50, i * 50 + 50), pa.int32())}), {})
    print(i, flush=True)
"""


def test_kill_at_any_moment_loses_no_reported_shard(tmp_path: Path) -> None:
    for pause in (0.0, 0.05, 0.13):
        root = tmp_path / str(pause)
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, text=True, cwd=REPO
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(pause)
        os.kill(writer.pid, signal.SIGKILL)
        reported = [int(line) for line in writer.stdout.read().split()]
        last = max(reported, default=0)
        keys = Ledger(root).keys(ACCOUNT)
        assert len(keys) % 50 == 0
        assert len(keys) >= (last + 1) * 50
        assert Ledger(root).duplicates(ACCOUNT) == 0

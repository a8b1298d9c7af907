"""Paid once, kept for ever: shards appear whole, identities are unique, races are counted."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from storage import leases
from storage.errors import Parked, Unreachable, UserError
from storage.leases import Documents, Folder, Leases
from storage.ledger import Account, Ledger
from storage.objects import Objects
from tests.s3_server import object_storage

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


# Leases on a disk and in a bucket: who holds what, who waits, and what becomes of a holder that is not heard of.


@pytest.fixture(params=["disk", "bucket"])
def documents(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Documents]:
    with ExitStack() as stack:
        if request.param == "disk":
            yield Folder(tmp_path)
            return
        server = stack.enter_context(object_storage())
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.make_bucket("leases")
        yield Objects(tmp_path, "s3://leases/root")


def test_what_is_free_is_shared_out_and_a_whole_is_waited_for(documents: Documents) -> None:
    a, b = Leases(documents, 0.02, command=1), Leases(documents, 0.02, command=2)
    told: list[str] = []
    done = threading.Event()

    def whole() -> None:
        with b.claimed({"account": ["p", "q"]}, told.append) as mine:
            assert mine == {"account": {"p", "q"}}
            done.set()

    with a.claimed({"account": ["p"]}):
        with b.claimed({"account": ["p", "q"], "other": ["p"]}, whole=False) as mine:
            assert mine == {"account": {"q"}, "other": {"p"}}
        waiting = threading.Thread(target=whole)
        waiting.start()
        assert not done.wait(0.3)
    assert done.wait(10)
    waiting.join()
    assert "is at work on it: waiting" in told[0] and len(told) == 1


def test_many_that_want_the_same_hold_it_one_after_the_other(documents: Documents) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with Leases(documents, 0.01).claimed({"one": ["whole"]}):
                with lock:
                    inside, most = inside + 1, max(most, inside + 1)
                threading.Event().wait(0.005)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_another_machine_takes_over_from_one_that_is_silent_and_that_one_stops(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SILENCE_SECONDS", 0.4)
    a, b = Leases(documents, 0.05), Leases(documents, 0.05)
    monkeypatch.setattr(leases, "machine", lambda: threading.current_thread().name)
    with a.claimed({"one": ["whole"]}):  # BEAT_SECONDS is 10
        a.check()
        monkeypatch.setattr(threading.current_thread(), "name", "elsewhere")
        with b.claimed({"one": ["whole"]}), pytest.raises(Parked, match="another machine took over"):
            a.check()


def test_a_lease_that_could_not_be_released_does_not_keep_its_own_process_waiting(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage was away when the block ended."""
    a = Leases(documents, 0.02)
    for outer in ({}, {"other": ["p"]}):  # as another holder, and as the same one
        with ExitStack() as stack:
            if outer:
                stack.enter_context(a.claimed(outer))
            with monkeypatch.context() as away, a.claimed({"one": ["whole"]}):
                away.setattr(Leases, "_change", lambda *_: unreachable())
            with a.claimed({"one": ["whole"]}, pytest.fail):
                pass


def unreachable() -> bool:
    raise Unreachable("away")


def test_the_lease_of_a_process_that_was_killed_here_is_free_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from storage.leases import leases_of\n"
        "with leases_of(Path(sys.argv[1])).claimed({'one': ['whole']}): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    process.kill()
    process.wait()
    with leases.leases_of(tmp_path).claimed({"one": ["whole"]}, pytest.fail):
        pass

"""Leases on a disk and in a bucket: who holds what, who waits, and what becomes of a holder that is not heard of."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from storage import leases
from storage.errors import Parked, Unreachable
from storage.leases import Documents, Folder, Leases
from storage.objects import Objects
from tests.s3_server import object_storage
from tests.servers import REPO


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
    a, b = Leases(documents, 0.02), Leases(documents, 0.02)
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

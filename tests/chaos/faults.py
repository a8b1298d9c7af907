"""Faults, each as a function: break a small study at a random moment, run the same command again, compare.

After every fault: the final artifacts equal those of an undisturbed run, no rollout was lost, none was doubled.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.garbage import BIN, collect
from tasks.rollouts import account_of
from tests.chaos.driver import GROUP, POLICY, PROBLEMS, SAMPLING
from tests.servers import REPO, end, free_port


class CannotTry(Exception):
    """This machine lacks what the fault needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """recovery: seconds from the fault to the finished study, process start included. kept: rollouts before it."""

    recovery: float
    kept: int


def start(root: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.driver", str(root), *words],
        cwd=REPO,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def paid(root: Path) -> int:
    return len(Ledger(root).keys(account_of(POLICY, SAMPLING)))


def results(root: Path) -> dict[str, pa.Table]:
    at = Store(root)
    return {str(ref): at.read(ref) for kind in ("rollouts", "toy_training", "toy_figures") for ref in at.refs(kind)}


def whole(root: Path, undisturbed: dict[str, pa.Table]) -> None:
    found = results(root)
    assert found.keys() == undisturbed.keys()
    assert all(found[ref].equals(table) for ref, table in undisturbed.items()), "results differ"
    assert paid(root) == GROUP * PROBLEMS.num_rows, "a rollout was lost"
    assert Ledger(root).duplicates(account_of(POLICY, SAMPLING)) == 0, "a rollout was paid for twice"


def _again(root: Path, since: float, undisturbed: dict[str, pa.Table], kept: int, *words: str) -> Outcome:
    assert start(root, *words).wait(300) == 0, "the same command did not finish"
    whole(root, undisturbed)
    return Outcome(time.monotonic() - since, kept)


def _signalled(how: int) -> Callable[[Path, dict[str, pa.Table], random.Random], Outcome]:
    def fault(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
        process, target = start(root), rng.randrange(1, GROUP * PROBLEMS.num_rows + 60)
        while process.poll() is None and paid(root) < min(target, GROUP * PROBLEMS.num_rows):
            time.sleep(0.01)
        time.sleep(rng.random() * 0.5 if target > GROUP * PROBLEMS.num_rows else 0)
        since, kept = time.monotonic(), paid(root)
        if how == signal.SIGTERM:
            process.terminate()
            assert process.wait(30) in (0, 143, -15), "the grace was not used"  # -15: it was leaving already
        end(process)
        assert paid(root) >= kept
        return _again(root, since, undisturbed, kept)

    return fault


def full_disk(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
    """A file system that is too small, then larger."""
    root.mkdir(parents=True, exist_ok=True)
    size = rng.randrange(60, 160)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode:
        raise CannotTry("mounting a small file system needs root")
    try:
        assert start(root).wait(120) == 2, "a full disk is a sentence and exit code 2"
        since, kept = time.monotonic(), paid(root)
        subprocess.run(["mount", "-o", "remount,size=64m", str(root)], check=True)
        return _again(root, since, undisturbed, kept)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=False)


def _wait_until_listening(port: int) -> None:
    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the engine's server did not come up")


def engine_killed(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
    """The remote engine's server dies and stays away: parked (75). It comes back: the same command goes on."""
    port = free_port()
    serve = [sys.executable, "-m", "tests.chaos.remote", str(port)]
    words = ("--endpoint", f"http://127.0.0.1:{port}/v1")
    server = subprocess.Popen(serve, cwd=REPO, start_new_session=True)
    try:
        _wait_until_listening(port)
        process = start(root, *words, VARBAND_OPENAI_PATIENCE="3")
        target = rng.randrange(1, 200)
        deadline = time.monotonic() + 60
        while paid(root) == 0 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(target / 1000)
        end(server)
        since = time.monotonic()
        assert process.wait(60) in (0, 75), "an engine that went away parks the run"
        kept = paid(root)
        server = subprocess.Popen(serve, cwd=REPO, start_new_session=True)
        return _again(root, since, undisturbed, kept, *words)
    finally:
        end(server)


def racing(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
    """Two runs of the same study at once, one of them killed."""
    first, second = start(root), start(root)
    while paid(root) == 0 and first.poll() is None:
        time.sleep(0.01)
    time.sleep(rng.random())
    since, kept = time.monotonic(), paid(root)
    killed, other = rng.sample([first, second], 2)
    end(killed)
    assert other.wait(300) == 0, "the other run did not finish"
    return _again(root, since, undisturbed, kept)


def store_damaged(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
    """A byte of an artifact flips, another artifact vanishes: only they and what follows are made again."""
    assert start(root).wait(300) == 0
    since, at = time.monotonic(), Store(root)
    victim = rng.choice(at.refs("toy_training") + at.refs("toy_figures"))
    data = at.path(victim) / "data.parquet"
    raw = bytearray(data.read_bytes())
    raw[rng.randrange(len(raw))] ^= 0x40
    data.write_bytes(bytes(raw))
    at.delete(at.refs("rollouts")[0])
    return _again(root, since, undisturbed, paid(root))


def collected(root: Path, undisturbed: dict[str, pa.Table], rng: random.Random) -> Outcome:
    """What is garbage is taken away over and over while a study runs, is killed, and goes on."""
    over, taken = threading.Event(), []

    def loop() -> None:
        while not over.wait(0.02):
            taken.extend(collect(root, older_than=timedelta(0), remove=True)["path"].to_pylist())

    collector = threading.Thread(target=loop)
    collector.start()
    try:
        outcome = _signalled(signal.SIGKILL)(root, undisturbed, rng)
    finally:
        over.set()
        collector.join()
    wanted = [path for path in taken if not path.startswith((".work", BIN))]
    assert not wanted, f"what the study wants was taken: {wanted}"
    return outcome


Fault = Callable[[Path, dict[str, pa.Table], random.Random], Outcome]
#: What is done → how.
FAULTS: dict[str, Fault] = {
    "kill -9 of the flow process": _signalled(signal.SIGKILL),
    "SIGTERM (pre-emption)": _signalled(signal.SIGTERM),
    "full disk": full_disk,
    "engine's server killed": engine_killed,
    "two runs at once, one killed": racing,
    "bit flip and a deleted artifact": store_damaged,
    "gc in a loop beside it": collected,
}

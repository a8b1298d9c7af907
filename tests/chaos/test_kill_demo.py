"""kill -9 at a dozen random moments, then the same command: the same report, no rollout lost or sampled twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from storage.ledger import Ledger
from tests.mini import SIDE_BY_SIDE, finish, hashes, report_text, start

KILLS = 12
#: The reference engine starts in a fifth of the time; what is under test is what survives, not who samples.
ENGINE = ("--engine", "transformers", *SIDE_BY_SIDE)


@pytest.mark.slow
@pytest.mark.chaos
def test_killed_a_dozen_times_the_demo_ends_the_same(tmp_path: Path) -> None:
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    began = time.monotonic()
    finish(calm, *ENGINE)
    undisturbed = time.monotonic() - began
    moments = random.Random(20261121)
    killed = 0
    for _ in range(KILLS):
        process = start(wild, *ENGINE)
        try:
            process.wait(timeout=moments.uniform(0.05, 0.35) * undisturbed)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        book = Ledger(wild)
        assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
    assert killed >= 3
    finish(wild, *ENGINE)
    assert hashes(wild) == hashes(calm)
    assert report_text(wild) == report_text(calm)
    counts = [
        sorted(len(Ledger(root).keys(account)) for account, _ in Ledger(root).accounts()) for root in (calm, wild)
    ]
    assert counts[0] == counts[1]

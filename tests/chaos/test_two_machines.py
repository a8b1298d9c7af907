"""kill -9 on machines that keep nothing: a light copy goes on to the next one, and the report is made on a third."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from flows.study.models import SHIPPED
from storage.ledger import Ledger
from storage.records.copies import copy_study
from tasks.engines.model_files import model_digest
from tests.mini import command, environment, finish, hashes, report_text, start

ENGINE = ("--engine", "transformers")
PATIENCE = 300


def killed_in_training(root: Path) -> None:
    """Killed once a training has a checkpoint that it had not when the machine was rented."""
    before = set(root.glob(".work/*/checkpoints/*"))
    process = start(root, *ENGINE, "--without", "embeddings")
    until = time.monotonic() + PATIENCE
    while not set(root.glob(".work/*/checkpoints/*")) - before and time.monotonic() < until:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def paid(root: Path) -> dict[str, int]:
    return {f"{a.policy}/{a.sampling}": len(Ledger(root).keys(a)) for a, _ in Ledger(root).accounts()}


@pytest.mark.slow
@pytest.mark.chaos
def test_three_machines_that_keep_nothing_and_a_fourth_that_reports(tmp_path: Path) -> None:
    calm = tmp_path / "calm"
    finish(calm, *ENGINE)
    machines = [tmp_path / f"machine-{i}" for i in range(4)]
    for here, there in pairwise(machines[:3]):
        killed_in_training(here)
        had = paid(here)
        copied = copy_study(here, there, weights=False)
        assert copied.shards and paid(there) == had
    last = command(machines[2], *ENGINE, "--without", "embeddings")
    done = subprocess.run(last, capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == 75, done.stderr
    copy_study(machines[2], machines[3], weights=False)
    finish(machines[3], *ENGINE, "--model", f"sha256:{model_digest(SHIPPED['demo'])}")
    assert paid(machines[3]) == paid(calm)
    assert sum(Ledger(machines[3]).duplicates(account) for account, _ in Ledger(machines[3]).accounts()) == 0
    assert hashes(machines[3]) == hashes(calm)
    assert report_text(machines[3]) == report_text(calm)

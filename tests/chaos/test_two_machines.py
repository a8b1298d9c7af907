"""kill -9 on machines that keep nothing: a light copy goes on to the next one, and the report is made on a third; or the
next one goes on from what is in the bucket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from flows.study.models import SHIPPED
from storage.ledger import Ledger
from storage.records.copies import copy_study
from tasks.engines.model_files import model_digest
from tests.mini import command, environment, finish, hashes, report_text, start
from tests.s3_server import object_storage

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


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finish(root := tmp_path_factory.mktemp("undisturbed") / "calm", *ENGINE)
    return root


@pytest.mark.slow
@pytest.mark.chaos
def test_a_machine_that_is_lost_in_training_loses_one_step(tmp_path: Path, calm: Path) -> None:
    """The next one has no working copy: the newest checkpoint, with the optimiser's state, comes from the bucket."""
    root = "s3://varband-spot/team"
    with object_storage() as server:
        server.make_bucket("varband-spot")

        def begin(name: str) -> subprocess.Popen[str]:
            surroundings = {**environment(), **server.environment, "VARBAND_CACHE": str(tmp_path / name)}
            words = [sys.executable, *command(Path("root"), *ENGINE, "--root", root)]
            return subprocess.Popen(words, cwd=tmp_path, env=surroundings, start_new_session=True, text=True)

        lost = begin("lost")
        until = time.monotonic() + PATIENCE
        while not (kept := [r for r in server.requests() if r.startswith("PUT") and "step-0002/state.json" in r]):
            assert lost.poll() is None and time.monotonic() < until, "it ended before it could be killed"
            time.sleep(0.05)
        os.killpg(lost.pid, signal.SIGKILL)
        lost.wait()
        before = len(server.requests())
        assert begin("next").wait(PATIENCE) == 0
        after = server.requests()[before:]
    (training,) = {line.split(".work/")[1].split("/")[0] for line in kept}
    brought = [line for line in after if line.startswith("GET") and f"{training}/checkpoints" in line]
    steps = [
        line.split("step-")[1][:4] for line in after if line.startswith("PUT") and f"{training}/checkpoints" in line
    ]
    assert any("state.safetensors" in line for line in brought) and steps and min(steps) >= "0003"
    there = next((tmp_path / "next" / "roots").iterdir())
    assert hashes(there) == hashes(calm)


@pytest.mark.slow
@pytest.mark.chaos
def test_three_machines_that_keep_nothing_and_a_fourth_that_reports(tmp_path: Path, calm: Path) -> None:
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

"""kill -9 on a machine that keeps nothing: the next one goes on from what is in the bucket."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mini import command, environment, finish, hashes
from tests.s3_server import object_storage

ENGINE = ("--engine", "transformers")
PATIENCE = 300


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

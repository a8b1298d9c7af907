"""SIGTERM in the middle of a step: gone within the grace, with exit code 75, and the same call ends where it would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.engines.learning.learner import Execution
from tests.engines.learning.test_learner import run, same

pytestmark = pytest.mark.slow

REPO = Path(__file__).resolve().parents[3]
#: Seconds, as `storage.stopping.stopped_by_signals` states it.
GRACE = 30
TRAINING = """
import sys, time
from pathlib import Path
from storage.stopping import stopped_by_signals
from storage.errors import Parked
from tasks.engines.learning.learner import Execution
from tests.engines.learning.test_learner import run, sample

def slow(plan):
    if plan.step == 3:
        print("in step 3", flush=True)
        time.sleep(600)
    return sample(plan)

try:
    with stopped_by_signals():
        run(Path(sys.argv[1]), Path(sys.argv[2]), sample=slow, execution=Execution(device="cpu", processes=int(sys.argv[3])))
except Parked as parked:
    print(parked, flush=True)
    sys.exit(parked.exit_code)
"""


@pytest.mark.parametrize("processes", [2])
def test_sigterm_parks_within_the_grace_and_loses_the_step_in_flight_at_most(
    processes: int, tiny_base: Path, tmp_path: Path
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(tiny_base), str(tmp_path / "stopped"), str(processes)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPO,
        env=os.environ | {"PYTHONPATH": str(REPO)},
    )
    assert worker.stdout is not None and "in step 3" in worker.stdout.readline()
    others = psutil.Process(worker.pid).children()
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(GRACE) == 75
    assert time.monotonic() - began < GRACE and "the same command resumes it" in worker.stdout.read()
    assert len(others) == processes - 1 and not any(other.is_running() for other in others)
    done: list[int] = []
    alone = Execution(device="cpu")
    resumed = run(tiny_base, tmp_path / "stopped", execution=alone, on_step=lambda m: done.append(m.row["step"]))
    assert done == [3, 4]
    if processes == 1:
        assert same(run(tiny_base, tmp_path / "whole", execution=alone).kept_adapters[-1], resumed.kept_adapters[-1])

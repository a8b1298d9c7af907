"""Arms in processes of their own: a stop ends all of them, a failure ends one, and the same command resumes it."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from flows.running import processes
from flows.running.pieces import Piece
from flows.running.processes import Claims, Failure, gpus_apart
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import all_runs
from storage.records.spending import charges
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, Step
from tests import mini


def arms_of(starter: psutil.Process, wanted: int) -> list[psutil.Process]:
    """The arms' processes, once as many are at work: one that is killed with its starter while it still reads what it is
    to do says so in Python's own words."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        found = [p for p in starter.children() if _is_arm_at_work(p)]
        if len(found) == wanted:
            return found
        time.sleep(0.1)
    raise AssertionError(f"never {wanted} arms at once")


def _is_arm_at_work(process: psutil.Process) -> bool:
    try:
        spawned = any("spawn_main" in word for word in process.cmdline())
        return spawned and any("pyarrow" in mapped.path for mapped in process.memory_maps())
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_they_end_with_their_starter(tmp_path: Path, how: signal.Signals) -> None:
    run = mini.start(tmp_path / "store", *mini.SIDE_BY_SIDE)
    arms = arms_of(psutil.Process(run.pid), 2)
    run.send_signal(how)
    _, said = run.communicate(timeout=120)
    gone, alive = psutil.wait_procs(arms, timeout=120)
    assert alive == [] and len(gone) == 2
    assert run.returncode == (75 if how is signal.SIGTERM else -signal.SIGKILL)
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_piece_of_one_that_dies_is_made_by_the_other(tmp_path: Path) -> None:
    run = mini.start(tmp_path / "store", *mini.SIDE_BY_SIDE, "--engine", "transformers", "--seeds", "")
    first, _ = arms_of(psutil.Process(run.pid), 2)
    first.kill()
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert said.count("a process ended early (exit code -9); its piece is made by another") == 1
    assert len(Store(tmp_path / "store").refs("bands")) == 2


@pytest.mark.slow
def test_the_budget_holds_for_all_of_them(tmp_path: Path) -> None:
    """Both sample at once, in batches of 32 rollouts that take at most 32 × (60 + 128) tokens: the wall is crossed by the
    batch that the other had begun, and by no more."""
    asked = ("--engine", "transformers", "--budget", "tokens=30000", "--set", "hardware.batch_size=32")
    run = mini.start(tmp_path / "store", *mini.SIDE_BY_SIDE, *asked)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 75, said
    assert said.count("varband: parked") == 1 and "Traceback" not in said
    assert f" --root {tmp_path / 'store'} --budget tokens=" in said, "what it says to give goes on with this run"
    assert "of 30,000 tokens" in said
    [parked] = all_runs(tmp_path / "store")
    assert parked.state == "parked" and 20_000 < parked.spent.tokens <= 30_000 + 32 * (60 + 128)
    assert {c["arm"] for c in charges(tmp_path / "store", parked.id).to_pylist()} >= {"panel", "thinking"}


def test_a_piece_that_failed_in_another_process_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, told = list[Ref](), list[Failure]()

    def fails(_: Session, step: Step, shard: int | None, hardware: Hardware) -> None:
        tried.append(step.ref)
        raise UserError("no")

    monkeypatch.setattr(processes, "make_piece", fails)
    there, here = (Piece(Ref("rollouts", digit * 16), f"screen {digit}") for digit in "01")
    steps: Any = [SimpleNamespace(ref=piece.ref) for piece in (there, here)]
    claims = Claims(
        Session(Store(tmp_path), Toolbox(), steps=steps),
        Hardware(),
        elsewhere=lambda: {there.key: UserError("no")},
        failed=told.append,
    )
    for piece in (there, here):
        claims.begin(piece)
    assert [(piece, str(error)) for _ in "01" for piece, error in claims.ended()] == [(there, "no"), (here, "no")]
    assert tried == [here.ref] and [piece for piece, _ in told] == [here]


def test_each_arm_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Hardware(device="cuda", arms_at_once=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    assert gpus_apart(two) == [("3",), ("5",)]
    assert gpus_apart(replace(two, tensor_parallel=2)) == [("3", "5")]  # not enough for two arms: one after the other
    assert gpus_apart(replace(two, processes=4)) == [("3", "5", "6")]
    assert gpus_apart(replace(two, sampler_apart=True, engine_process="core")) == [("3", "5")]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert gpus_apart(two) == [("0",)]
    assert gpus_apart(replace(two, device="cpu")) == [(), ()]

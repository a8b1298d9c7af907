"""Processes that share a step have the gradient, the weights and the numbers of one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from storage.errors import Parked
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.engines.learning.learner import Execution, StepMetrics
from tests.engines.learning.test_learner import run, sample, weights

ALONE = Execution(device="cpu", token_budget=40)
TWO = replace(ALONE, processes=2)


def others() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if p.cmdline()[1:3] == ["-m", "tasks.engines.learning.learner"]]


def test_two_processes_are_one(tiny_base: Path, tmp_path: Path) -> None:
    """After the first step, which shows the gradient, and after all of them; nobody is left behind."""
    seen: list[int] = []

    def look(plan: StepPlan) -> list[TrainRollout]:
        seen.append(len(others()))
        return sample(plan)

    one = run(tiny_base, tmp_path / "one", execution=ALONE)
    two = run(tiny_base, tmp_path / "two", execution=TWO, sample=look)
    assert seen == [1] * 5 and others() == []
    assert one.exposure == two.exposure
    assert one.steps[0]["grad_norm"] == pytest.approx(two.steps[0]["grad_norm"], rel=1e-5)
    for mine, shared in zip(one.steps, two.steps, strict=True):
        assert {k for k, v in shared.items() if v is None} == {k for k, v in mine.items() if v is None} == {"kl_start"}
        assert shared | {"kl_start": 0} == pytest.approx(mine | {"kl_start": 0}, rel=1e-4)
    for name, matrix in weights(one.kept_adapters[-1]).items():
        assert torch.allclose(weights(two.kept_adapters[-1])[name], matrix, atol=1e-5)


@pytest.mark.slow
def test_a_process_that_dies_parks_the_training(tiny_base: Path, tmp_path: Path) -> None:
    def kill(metrics: StepMetrics) -> None:
        if metrics.row["step"] == 2:
            os.kill(others()[0].pid, signal.SIGKILL)

    with pytest.raises(Parked, match=r"process 1 of the learner ended early, see .*process-1\.log"):
        run(tiny_base, tmp_path, execution=TWO, on_step=kill)
    done: list[StepMetrics] = []
    run(tiny_base, tmp_path, execution=ALONE, on_step=done.append)
    assert [m.row["step"] for m in done] == [3, 4]

"""Two processes that share a step have the gradient, the weights and the numbers of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasks.engines.update import Clock, Updater
from tests.engines.conftest import random_rollouts
from tests.engines.test_packed import CONFIG, PROBLEMS, grouped, policy_of

REPO = Path(__file__).resolve().parents[2]


def test_two_processes_are_one(tiny_base: Path, tmp_path: Path) -> None:
    policy = policy_of(tiny_base)
    row = Updater(policy, CONFIG, 40).update(grouped(random_rollouts(PROBLEMS, 4, seed=9)), Clock())
    worker = Path(__file__).with_name("ddp_worker.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0",
              "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, worker, tiny_base, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first["grad"], second["grad"]) and torch.equal(first["master"], second["master"])
    assert torch.linalg.vector_norm(first["grad"] - policy.lora.grad) <= 1e-5 * torch.linalg.vector_norm(
        policy.lora.grad
    )
    assert first["row"] == second["row"] == pytest.approx(row, rel=1e-5)

"""Run by torchrun: one gradient of a step that two processes share. Arguments: base folder, where to write it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tasks.engines import parallel
from tasks.engines.update import Clock, Updater
from tests.engines.conftest import random_rollouts
from tests.engines.test_packed import CONFIG, PROBLEMS, grouped, policy_of


def main(base: Path, out: Path) -> None:
    parallel.join("cpu")
    policy = policy_of(base)
    rollouts = parallel.from_first(random_rollouts(PROBLEMS, 4, seed=9) if parallel.rank_and_world()[0] == 0 else None)
    row = Updater(policy, CONFIG, 40).update(grouped(rollouts), Clock())
    torch.save({"grad": policy.lora.grad, "master": policy.lora.master, "row": row},
               out / f"{parallel.rank_and_world()[0]}.pt")  # fmt: skip
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

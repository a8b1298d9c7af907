"""Pretrain the demo's base model into a folder: about six minutes. Its card is models/demo/README.md.

python -m tasks.engines.demo OUT [--steps N] [--seed N]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tasks.engines.demo.pretrain import PretrainConfig, pretrain
from tasks.engines.environment import quiet_libraries


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tasks.engines.demo", description=__doc__)
    words.add_argument("out", type=Path)
    words.add_argument("--steps", type=int, default=PretrainConfig().steps)
    words.add_argument("--seed", type=int, default=PretrainConfig().seed, help="Of the weights and of the data.")
    given = words.parse_args()
    if (given.out / "model.safetensors").exists():
        words.error(f"{given.out}: a model is there already; name another folder")
    quiet_libraries()
    config = replace(PretrainConfig(), steps=given.steps, seed=given.seed)
    pretrain(config, given.out, 2, lambda step, loss: print(f"step {step} of {config.steps}: {loss:.3f} nats"))


if __name__ == "__main__":
    main()

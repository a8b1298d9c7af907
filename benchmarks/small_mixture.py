"""A mixture of four layers that knows the demo's problems, for what a 30B mixture is too large to show: that it learns.

    python -m benchmarks.small_mixture --out DIR [--threads 8]
    varband run demo --root ROOT --set model=DIR                  (on a GPU: --set hardware.device=cuda ...)

Pretrained as the demo's model is (tasks/engines/demo), with 8 experts a layer, two of them a token.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tasks.engines.demo.pretrain import PretrainConfig, pretrain

#: Experts as wide as a half of the demo model's MLP: a token is multiplied by as many weights.
CONFIG = PretrainConfig(steps=2000, layers=4, mlp=144, experts=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=CONFIG.steps)
    args = parser.parse_args()
    config = PretrainConfig(**asdict(CONFIG) | {"steps": args.steps})
    made = pretrain(config, args.out, args.threads, told)
    print(json.dumps(asdict(made)))


def told(step: int, loss: float) -> None:
    if step % 100 == 0:
        print(f"step {step}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()

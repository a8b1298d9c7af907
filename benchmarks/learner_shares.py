"""What a second process of the learner can gain at most, from one GPU: each pack of a step timed by itself.

    python -m benchmarks.learner_shares --model DIR --published FOLDER --budget 8192 --longest 12288

Steps have the lengths of the published training. One process trains the packs that are cut for it, one after the other;
of two, the one with more to do. Left out: the sum of their gradients, whose size is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from benchmarks.learner_profile import CONFIG, execution
from benchmarks.published_lengths import step_lengths
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack, pack_cost, plan_shares
from tasks.domain.grpo.types import StepPlan
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.learning.policy import Policy


def published_step(published: Path, step: int, steps: int, longest: int, vocabulary: int) -> list[PromptGroup]:
    """Random tokens of published lengths; a prompt has 260."""
    problems, size = CONFIG.groups_per_step, CONFIG.group_size
    plan = StepPlan(step, tuple(map(str, range(problems))), size, step - 1, None, False)
    lengths = step_lengths(published, plan, steps, longest)
    draw, groups = np.random.default_rng(step), []
    for start in range(0, len(lengths), size):
        drawn = [draw.integers(0, vocabulary, n).tolist() for n in lengths[start : start + size]]
        known = [np.full(len(tokens), -12, np.float32) for tokens in drawn]
        own = [Trajectory(start + i, t, k, 1.0) for i, (t, k) in enumerate(zip(drawn, known, strict=True))]
        groups.append(PromptGroup(draw.integers(0, vocabulary, 260).tolist(), own))
    return groups


def pass_seconds(policy: Policy, plan: Sequence[PromptGroup]) -> float:
    """Forward and backward of one pack, arrays and gradient's sum included."""
    synchronised(policy)
    began = time.perf_counter()
    policy.logprobs(build_pack(plan))[0].sum().backward()
    policy.lora.collect()
    synchronised(policy)
    return time.perf_counter() - began


def synchronised(policy: Policy) -> None:
    if policy.device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    args = arguments()
    policy = Policy(args.model, CONFIG, execution(str(args.budget)))
    vocabulary = read_config(args.model)["vocab_size"]
    gradient = policy.lora.grad
    print(f"gradient {gradient.numel() * gradient.itemsize / 1e9:.2f} GB", flush=True)
    seen: list[tuple[float, float]] = []
    for turn, step in enumerate((1, *range(1, args.steps + 1))):
        groups = published_step(args.published, step, args.steps, args.longest, vocabulary)
        took = {}
        for processes in (1, 2):
            shares = plan_shares(groups, args.budget, processes)
            seconds = [[pass_seconds(policy, plan) for plan in share] for share in shares]
            took[processes] = [sum(share) for share in seconds]
            # the first turn compiles
            if turn:
                costs = map(pack_cost, chain.from_iterable(shares))
                seen += zip(costs, chain.from_iterable(seconds), strict=True)
        two = " and ".join(f"{s:.3f}" for s in took[2])
        print(f"step {step}: alone {took[1][0]:.3f} s, of two {two} s: {took[1][0] / max(took[2]):.2f}", flush=True)
    rate = np.array([s / cost for cost, s in seen])
    print(f"seconds a row of cost: {rate.mean():.2e}, coefficient of variation {rate.std() / rate.mean():.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=8192)
    parser.add_argument("--longest", type=int, default=12_288)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

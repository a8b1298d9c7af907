"""How far the policy that is sampled, with adapters merged by stochastic rounding, is from the one that is trained and stored.

    python -m benchmarks.merged_policy --model DIR --problems FILE.jsonl --adapters FOLDER … [--groups 8] [--group-size 16]

For each adapter (as `benchmarks/grpo_speed.py --keep-adapters` leaves them): the share of its update that the served weights hold,
at the layer where it is worst too; and over rollouts sampled from them the KL a token to the learner on merged weights, and
to the learner with the adapter beside the weights, whose log-probs are PEFT's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.grpo_speed import read_problems
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack, plan_packs
from tasks.domain.grpo.types import LearnerConfig
from tasks.domain.policies import ServedAdapter
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.adapter_files import adapter_config
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.learning.merging import merged, read_products
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.served_weights import file_tensors
from tasks.engines.sampling.vllm import VllmGenerator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--adapters", type=Path, nargs="+", required=True)
    parser.add_argument("--scaffold", default="panel", choices=sorted(SCAFFOLDS))
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--engine-process", default="core", choices=("inside", "core", "worker", "both"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = read_config(args.model)
    hardware = Hardware(
        max_model_len=min(args.max_tokens + 1024, config["max_position_embeddings"]),
        max_num_seqs=args.groups * args.group_size,
        dtype=args.dtype,
        engine_process=args.engine_process,
        adapters="merged",
    )
    rank = adapter_config(args.adapters[0])["r"]
    learner = LearnerConfig(
        steps=1, groups_per_step=1, group_size=2, learning_rate=1e-5, lora_rank=rank, lora_alpha=rank
    )
    generator = VllmGenerator(args.model, hardware, rank)
    policies = {
        name: Policy(args.model, learner, Execution(dtype=args.dtype, merged=name == "merged"))
        for name in ("merged", "beside")
    }
    weights = {name: tensor.to(device, getattr(torch, args.dtype)) for name, tensor in file_tensors(args.model).items()}
    for folder in args.adapters:
        print(f"{folder.name}: {arrived(folder, weights)}", flush=True)
        groups = sample(args, generator, ServedAdapter(str(folder), folder))
        for name, policy in policies.items():
            policy.lora.load(folder, args.model)
            print(f"{folder.name}: {distance(policy, groups)} ({name})", flush=True)
    generator.close()


def arrived(folder: Path, weights: dict[str, torch.Tensor]) -> str:
    """Projection of what the weights changed by on the adapter's own update."""
    products, along, length, worst = read_products(folder), 0.0, 0.0, 1.0
    for name, (a, b) in products.pairs.items():
        weight = weights[f"{name}.weight"]
        a, b = a.to(weight.device, weight.dtype).float(), b.to(weight.device, weight.dtype).float()
        update = products.scale(name) * (b @ a)
        change = merged(weight, a, b, products.scale(name)).float() - weight.float()
        inner, square = (
            float((change * update).sum(dtype=torch.float64)),
            float(update.square().sum(dtype=torch.float64)),
        )
        along, length = along + inner, length + square
        if square and abs(inner / square - 1) > abs(worst - 1):
            worst = inner / square
    if not length:
        return "it changes nothing"
    return f"{100 * along / length:.2f} % of the update arrive ({100 * worst:.1f} % in the layer furthest from it)"


def sample(args: argparse.Namespace, generator: Any, adapter: ServedAdapter) -> list[PromptGroup]:
    scaffold, groups = SCAFFOLDS[args.scaffold], []
    decoding = Decoding(max_tokens=args.max_tokens, stop=scaffold.stop)
    chosen = list(read_problems(args.problems).values())[: args.groups]
    prompts = [
        generator.encode(scaffold.prompt(p["problem"]), chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
        for p in chosen
    ]
    requests = [
        Request(g * args.group_size + i, prompt, 7_000 + g * args.group_size + i, decoding)
        for g, prompt in enumerate(prompts)
        for i in range(args.group_size)
    ]
    done = sorted(generator.generate(requests, adapter), key=lambda c: c.key)
    for g, prompt in enumerate(prompts):
        own = done[g * args.group_size : (g + 1) * args.group_size]
        groups.append(
            PromptGroup(prompt, [Trajectory(c.key, c.token_ids, c.logprobs_T, 1.0) for c in own if c.token_ids])
        )
    return groups


def distance(policy: Policy, groups: list[PromptGroup]) -> str:
    """KL(behaviour ‖ policy) a token, estimated as the mean of r - 1 - log r, r the policy's share."""
    gaps = []
    for pack in plan_packs(groups, 8192):
        built = build_pack(pack)
        with torch.no_grad():
            gaps.append(policy.logprobs(built)[0].cpu().numpy() - built.behaviour_K)
    gap = np.concatenate(gaps).astype(np.float64)
    kl = float(np.mean(np.expm1(gap) - gap))
    return f"KL a token {kl:.1e}, ratio at most {float(np.exp(np.abs(gap).max())):.2f}, {gap.size} tokens"


if __name__ == "__main__":
    main()

"""Where a learner update spends its time, without a sampler: random rollouts of a step's shape, several settings.

python benchmarks/learner_profile.py --model DIR            (or --random for weights of a 1.5B model's shape)
python benchmarks/learner_profile.py --random --settings 6144 12288 12288 16384+on --table
python benchmarks/learner_profile.py --model DIR --settings 8192 --processes 1 2      (whole steps of a training, one process a GPU)
python benchmarks/learner_profile.py --model DIR --settings 8192 --processes 1 --workdir DIR --checkpoint-every 2      (killed, it goes on)
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.published_lengths import LABELS, screening_lengths
from tasks.domain.grpo.types import LearnerConfig, PromptProblem, StepPlan, TrainRollout
from tasks.engines.learning.learner import StepMetrics, train
from tasks.engines.learning.memory_plan import num_experts, read_config
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater

CONFIG = LearnerConfig(steps=1, groups_per_step=8, group_size=16, learning_rate=2e-5, lora_rank=32, lora_alpha=32)
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def random_step(vocabulary: int, args: argparse.Namespace) -> dict[str, list[TrainRollout]]:
    """Groups of random tokens, half of the rollouts right. Lengths are log-normal (sigma 0.5), or an arm's."""
    rng, groups, published = np.random.default_rng(0), {}, None
    if args.published:
        published = screening_lengths(args.published, args.arm, CONFIG.groups_per_step, CONFIG.group_size, args.longest)
    for p in range(CONFIG.groups_per_step):
        prompt_ids = rng.integers(0, vocabulary, args.prompt).tolist()
        group = []
        for g in range(CONFIG.group_size):
            drawn = int(np.clip(rng.lognormal(np.log(args.mean) - 0.125, 0.5), 8, args.longest))
            length = published[p][g] if published else drawn
            tokens = rng.integers(0, vocabulary, length).tolist()
            group.append(
                TrainRollout(
                    f"p{p}", "s", g, prompt_ids, tokens, np.full(length, -12, np.float32), g % 2 == 0, True, False
                )
            )
        groups[f"p{p}"] = group
    return groups


def random_model(folder: Path, layers: int) -> Path:
    """Random bf16 weights in the shape of Qwen2.5-1.5B."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=32_768,
        dtype="bfloat16",
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def execution(setting: str) -> Execution:
    """`6144`, `16384+on` (recomputation), `8192+beside` (adapters not merged): the budget and what is added."""
    budget, *extra = setting.split("+")
    recompute = "on" if "on" in extra else "off"
    return Execution(token_budget=int(budget), checkpointing=recompute, merged="beside" not in extra)


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        base = args.model or random_model(Path(folder) / "base", args.layers)
        for setting in args.settings:
            if args.processes:
                for processes in args.processes:
                    train_steps(base, setting, processes, args)
            else:
                measure(base, setting, args)


def train_steps(base: Path, setting: str, processes: int, args: argparse.Namespace) -> None:
    """Training on the same rollouts every step, by the loop that studies train with: what a process more gains."""
    shape = read_config(base)
    config = replace(CONFIG, steps=args.turns + 1, eval_every=10**6)
    config = replace(config, target_modules=ATTENTION) if args.attention_only else config
    mixture = num_experts(shape) > 0
    how = replace(execution(setting), flat_adapters=mixture, processes=processes)
    how = replace(how, checkpoint_every=args.checkpoint_every, async_checkpoints=torch.cuda.is_available())
    groups = random_step(shape["vocab_size"], args)
    tokens = sum(len(r.token_ids) for g in groups.values() for r in g)
    phases: list[dict[str, float]] = []

    def sample(plan: StepPlan) -> list[TrainRollout]:
        # a mixture's weights are merged while rollouts are awaited, and would be waited for in the update else
        time.sleep(args.sampling)
        named = zip(plan.problem_ids, groups.values(), strict=False)
        return [replace(r, problem_id=problem) for problem, group in named for r in group]

    def told(metrics: StepMetrics) -> None:
        phases.append(metrics.seconds)
        row = metrics.row
        took = " ".join(f"{name} {seconds:.3f}" for name, seconds in metrics.seconds.items())
        print(
            f"{setting} processes {processes} step {row['step']} grad_norm {row['grad_norm']:.6e} entropy {row['entropy']:.6f},"
            f" seconds: {took}",
            flush=True,
        )

    aside = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    with nullcontext(args.workdir) if args.workdir else aside as workdir:
        train(
            base=base,
            problems=[PromptProblem(problem, "s") for problem in groups],
            config=config,
            execution=how,
            workdir=Path(workdir),
            sample=sample,
            on_step=told,
        )
    for name in ("train", "optimise", "checkpoint", "sync"):
        took = [seconds.get(name, 0.0) for seconds in phases]
        print(f"{setting} processes {processes} {name:9s} {' '.join(f'{t:.3f}' for t in took)} s", flush=True)
    peak = f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if torch.cuda.is_available() else ""
    print(f"{setting} processes {processes} {tokens} tokens a step{peak}", flush=True)


def measure(base: Path, setting: str, args: argparse.Namespace) -> None:
    cuda = torch.cuda.is_available()
    config = replace(CONFIG, target_modules=ATTENTION) if args.attention_only else CONFIG
    shape = read_config(base)
    how = execution(setting)
    policy = Policy(base, config, how)
    updater = Updater(policy, config, how.token_budget)
    groups = random_step(len(policy.head), args)
    tokens = sum(len(r.token_ids) for g in groups.values() for r in g)
    seconds, warm = [], 0.0
    for turn in range(args.turns + 1):
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        updater.update(groups, Clock())
        if cuda:
            torch.cuda.synchronize()
        if turn:
            seconds.append(time.perf_counter() - began)
        else:
            warm = time.perf_counter() - began
            if cuda:
                torch.cuda.reset_peak_memory_stats()
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    flops = 4.0 * (active_parameters(shape) + policy.head.numel()) * tokens
    print(
        f"{setting:16s} {median(seconds):6.3f} s/update (first {warm:5.1f}), {tokens} tokens,"
        f" {tokens / median(seconds):8.0f} tokens/s, {flops / median(seconds) / 1e12:5.0f} TFLOP/s, peak {peak:5.1f} GiB",
        flush=True,
    )
    if args.table:
        from torch.profiler import profile

        with profile() as profiled:
            updater.update(groups, Clock())
        order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        print(profiled.key_averages().table(sort_by=order, row_limit=35, max_name_column_width=70))
    del policy, updater
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()


def active_parameters(shape: dict[str, Any]) -> int:
    """Weights of the decoder's matrices that one token is multiplied by."""
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    head = shape.get("head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + shape["num_key_value_heads"])
    inner = shape["intermediate_size"]
    if experts := num_experts(shape):
        inner = shape["num_experts_per_tok"] * shape["moe_intermediate_size"]
        attention += experts * hidden
    return shape["num_hidden_layers"] * (attention + 3 * hidden * inner)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", type=Path)
    which.add_argument("--random", action="store_true")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--settings", nargs="+", default=["6144", "8192", "12288", "16384+on"])
    parser.add_argument("--mean", type=float, default=590)
    parser.add_argument("--prompt", type=int, default=260)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--published", type=Path, help="lengths of --arm instead, cut at --longest")
    parser.add_argument("--arm", choices=sorted(LABELS), default="thinking")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--attention-only", action="store_true", help="no LoRA on the MLP or the experts")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--processes", type=int, nargs="+", help="of the learner: whole steps, one process a GPU")
    parser.add_argument("--sampling", type=float, default=3.0, help="seconds that rollouts of whole steps take to come")
    parser.add_argument("--workdir", type=Path, help="of whole steps: kept, and gone on in")
    parser.add_argument("--checkpoint-every", type=int, default=10**6)
    return parser.parse_args()


if __name__ == "__main__":
    main()

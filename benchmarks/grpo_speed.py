"""Seconds per GRPO step by phase, on a GPU.

    python -m benchmarks.grpo_speed --model DIR --problems FILE.jsonl --steps 12 --out speed.json

FILE.jsonl has `problem` and `gold` a line. The first `--warmup` steps are left out of the medians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from psutil import Process

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout
from tasks.domain.scaffolds import SCAFFOLDS, Scaffold
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.hardware import Hardware
from tasks.engines.learning.learner import Execution, StepMetrics, train
from tasks.engines.model_files import num_experts, read_config
from tasks.engines.protocols import Completion, Decoding, Generator, Request

STARTED = Process().create_time()


def main() -> None:
    args = arguments()
    config = LearnerConfig(
        steps=args.steps,
        groups_per_step=args.groups,
        group_size=args.group_size,
        learning_rate=2e-5,
        lora_rank=args.rank,
        lora_alpha=args.rank,
        eval_every=10**6,
        prompt_order="proportional",
        staleness=args.staleness,
    )
    problems = read_problems(args.problems)
    hardware = Hardware(
        max_model_len=args.max_tokens + 1024,
        batch_size=None,
        max_num_seqs=args.groups * args.group_size,
        memory_fraction=args.memory_fraction,
        dtype="bfloat16",
        engine_process=args.engine_process,
        adapters=args.adapters,
        sampler_apart=args.sampler_apart,
        processes=args.processes,
        determinism=args.determinism,
    )
    from tasks.engines.sampling.vllm import VllmGenerator

    generator = VllmGenerator(args.model, hardware, args.rank)
    print(f"engine up after {time.time() - STARTED:.1f} s, adapters {generator.adapters}", flush=True)
    held, merges = torch.cuda.memory_allocated(), generator.adapters == "merged"
    mixture = num_experts(read_config(args.model)) > 0
    execution = Execution(
        token_budget=args.token_budget,
        async_checkpoints=True,
        processes=args.processes,
        deterministic=args.determinism == "bits",
        merged=merges,
        stacked_adapters=merges and mixture,
    )
    with Graders() as graders, tempfile.TemporaryDirectory(dir="/dev/shm") as workdir, closing(generator):
        run = Run(args, config, execution, problems, generator, graders, held)
        train(
            base=args.model,
            problems=[PromptProblem(p, "bench") for p in problems],
            config=config,
            execution=execution,
            workdir=Path(workdir),
            sample=run.sample,
            on_step=run.on_step,
        )
    run.print_summary()
    if args.out:
        args.out.write_text(json.dumps({"settings": vars(args), "steps": run.steps}, indent=1, default=str))


@dataclass
class Run:
    """Samples for the learner and keeps what each step took. held: bytes of the GPU that the engine holds."""

    args: argparse.Namespace
    config: LearnerConfig
    execution: Execution
    problems: dict[str, dict[str, str]]
    generator: Generator
    graders: Graders
    held: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    sampled: dict[int, dict[str, float]] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    @property
    def scaffold(self) -> Scaffold:
        return SCAFFOLDS[self.args.scaffold]

    def sample(self, plan: StepPlan) -> list[TrainRollout]:
        if not plan.problem_ids:
            return []
        began = time.perf_counter()
        decoding = Decoding(max_tokens=self.args.max_tokens, stop=self.scaffold.stop)
        requests, owners = [], []
        for problem_id in plan.problem_ids:
            prompt = self.generator.encode(self.scaffold, self.problems[problem_id]["problem"])
            for rollout in range(plan.group_size):
                requests.append(Request(len(requests), prompt, plan.step * 10_000 + len(requests), decoding))
                owners.append((problem_id, rollout))

        def item(c: Completion) -> GradeItem:
            return GradeItem(self.scaffold.name, c.text, self.problems[owners[c.key][0]]["gold"], c.finish)

        done = list[Completion]()
        with ThreadPoolExecutor(1) as ahead:  # graders remember verdicts
            for completion in self.generator.generate(requests, plan.adapter):
                ahead.submit(self.graders.grade, [item(completion)])
                done.append(completion)
        done.sort(key=lambda c: c.key)
        sampled = time.perf_counter()
        verdicts = self.graders.grade([item(c) for c in done])
        rollouts = [
            TrainRollout(
                owners[c.key][0],
                "bench",
                owners[c.key][1],
                requests[c.key].prompt_ids,
                c.token_ids,
                c.logprobs_T,
                v.correct,
                self.scaffold.parse(c.text).tag_valid,
                len(c.token_ids) == self.args.max_tokens,
            )
            for c, v in zip(done, verdicts, strict=True)
        ]
        tokens = sum(len(c.token_ids) for c in done)
        self.sampled[plan.step] = {
            "generate": sampled - began,
            "grade": time.perf_counter() - sampled,
            "tokens": float(tokens),
        }
        torch.cuda.reset_peak_memory_stats()
        return rollouts

    def on_step(self, metrics: StepMetrics) -> None:
        if not self.steps:
            print(f"first step trained {time.time() - STARTED:.1f} s after the start", flush=True)
        wall, self.last = time.perf_counter() - self.last, time.perf_counter()
        phases = {k: v for k, v in metrics.seconds.items() if k != "sample"}
        now = self.sampled.pop(int(metrics.row["step"]))
        named = now["generate"] + now["grade"] + sum(phases.values())
        self.steps.append(
            {
                "step": metrics.row["step"],
                "wall": wall,
                **now,
                **phases,
                "other": wall - named,
                "tokens": metrics.row["num_tokens"],
                "trained_tokens": metrics.row["trained_tokens"],
                "live": metrics.row["live_groups"],
                "correct": metrics.row["correct_mean"],
                "kl": metrics.row["kl_behaviour"],
                "ratio_max": metrics.row["ratio_max"],
                "trainer_gib": (torch.cuda.max_memory_allocated() - self.held) / 2**30,
            }
        )
        print(" ".join(f"{k}={v:.4g}" for k, v in self.steps[-1].items() if v is not None), flush=True)

    def print_summary(self) -> None:
        kept = self.steps[self.args.warmup :]
        names = {name for step in kept for name in step}
        middle = {k: median([s[k] for s in kept if s.get(k) is not None] or [0.0]) for k in names}
        print(f"\nmedian of {len(kept)} steps, {self.args.groups}x{self.args.group_size} rollouts")
        for name in ("wall", "generate", "grade", "train", "optimise", "sync", "checkpoint", "other"):
            print(f"  {name:11s} {middle.get(name, 0.0):7.3f} s")
        print(f"  sampled     {middle['tokens'] / middle['generate']:7.0f} tokens/s")
        print(f"  trainer     {max(s['trainer_gib'] for s in kept):7.1f} GiB at most")
        print(f"  KL a token  {max(s['kl'] or 0 for s in self.steps):.1e} at most, of behaviour and policy")
        print(f"  mean wall   {sum(s['wall'] for s in kept) / len(kept):7.3f} s/step")


def read_problems(path: Path) -> dict[str, dict[str, str]]:
    rows = [json.loads(line) for line in path.read_text().split("\n") if line.strip()]
    return {
        f"{i:05d}": {"problem": r["problem"], "gold": str(r.get("gold", r.get("answer")))} for i, r in enumerate(rows)
    }


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that describe a step, which grpo_trl has too."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--scaffold", default="panel", choices=sorted(SCAFFOLDS))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--memory-fraction", type=float, default=0.45)
    parser.add_argument("--out", type=Path)
    return parser


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--token-budget", type=int, default=10240)
    parser.add_argument("--engine-process", default="both", choices=("inside", "core", "worker", "both"))
    parser.add_argument("--adapters", default="auto", choices=("auto", "merged", "unmerged"))
    parser.add_argument("--determinism", default="fast", choices=("fast", "bits"))
    parser.add_argument("--staleness", type=int, default=0, choices=(0, 1))
    parser.add_argument("--sampler-apart", action="store_true", help="the engine has the second GPU to itself")
    parser.add_argument("--processes", type=int, default=1, help="of the learner, one a GPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()

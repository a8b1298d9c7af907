"""The same GRPO step by TRL's GRPOTrainer with colocated vLLM: same model, prompts, rollouts and LoRA.

    python -m benchmarks.grpo_trl --model DIR --problems FILE.jsonl --steps 12 --search 600 --out trl.json

TRL pads to the longest rollout, so its best micro-batch depends on the GPU's memory. `--search SECONDS` tries the
settings of SEARCHED for 5 steps each, as long as time is left, and then runs the fastest one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

from tasks.domain.grpo.learner_config import ALL_LINEAR
from tasks.domain.scaffolds import PANEL
from tasks.engines.grading.graders import GradeItem, Graders

#: The likely fastest first.
SEARCHED = (
    ("--micro-batch", "16", "--liger"),
    ("--micro-batch", "8"),
    ("--micro-batch", "32", "--liger"),
    ("--micro-batch", "16", "--gradient-checkpointing"),
    ("--micro-batch", "64", "--liger", "--gradient-checkpointing"),
    ("--micro-batch", "4"),
)


def searched(args: argparse.Namespace) -> list[str]:
    """Return the settings with the smallest mean seconds per step. Each is tried in a process of its own, because some
    run out of memory."""
    began, words, found = time.monotonic(), own_words(), dict[tuple[str, ...], float]()
    for setting in SEARCHED:
        if found and time.monotonic() - began > args.search:
            break
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [sys.executable, "-m", "benchmarks.grpo_trl", *words, *setting, "--steps", "5", "--out", out.name]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                last = [line for line in ended.stderr.splitlines() if line.strip()][-1:]
                print(f"{' '.join(setting)}: {''.join(last)[:300]}", flush=True)
                continue
            seconds = json.loads(Path(out.name).read_text())["seconds"][args.warmup :]
            found[setting] = sum(seconds) / len(seconds)
            print(f"{' '.join(setting)}: {found[setting]:.2f} s/step", flush=True)
    if not found:
        sys.exit("no setting fits this GPU")
    return [*min(found, key=lambda setting: found[setting])]


def own_words() -> list[str]:
    """Return this command's words without those that a search sets."""
    words, kept = iter(sys.argv[1:]), list[str]()
    for word in words:
        if word in ("--search", "--steps", "--out", "--micro-batch"):
            next(words)
        elif word not in ("--liger", "--gradient-checkpointing"):
            kept.append(word)
    return kept


class StepTimes(TrainerCallback):
    """Wall seconds from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.last = time.perf_counter()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.last = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        print(f"step {len(self.seconds)}: {self.seconds[-1]:.2f} s", flush=True)


def settings(args: argparse.Namespace, folder: str) -> GRPOConfig:
    rollouts = args.groups * args.group_size
    wanted: dict[str, Any] = {
        "output_dir": folder,
        "max_steps": args.steps,
        "per_device_train_batch_size": args.micro_batch,
        "gradient_accumulation_steps": rollouts // args.micro_batch,
        "num_generations": args.group_size,
        "max_completion_length": args.max_tokens,
        "temperature": 1.0,
        "beta": 0.0,
        "learning_rate": 2e-5,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "max_grad_norm": 1e9,
        "scale_rewards": "none",
        "loss_type": "dr_grpo",
        "num_iterations": 1,
        "bf16": True,
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": args.memory_fraction,
        "vllm_max_model_length": args.max_tokens + 1024,
        "vllm_importance_sampling_correction": False,
        "generation_kwargs": {"stop": list(PANEL.stop), "include_stop_str_in_output": True},
        "gradient_checkpointing": args.gradient_checkpointing,
        "use_liger_kernel": args.liger,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "seed": 0,
        "disable_tqdm": True,
        "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": "sdpa"},
    }
    known = {f.name for f in fields(GRPOConfig)}
    if unknown := sorted(set(wanted) - known):
        print(f"this TRL does not know: {', '.join(unknown)}")
    return GRPOConfig(**{name: value for name, value in wanted.items() if name in known})


def main() -> None:
    args = arguments()
    if args.search:
        best = searched(args)
        print(f"\nbest: {' '.join(best)}", flush=True)
        tail = ["--steps", str(args.steps), *(["--out", str(args.out)] if args.out else [])]
        sys.exit(subprocess.call([sys.executable, "-m", "benchmarks.grpo_trl", *own_words(), *best, *tail]))
    rows = [json.loads(line) for line in args.problems.read_text().split("\n") if line.strip()]
    dataset = Dataset.from_list(
        [{"prompt": PANEL.prompt(r["problem"]), "gold": str(r.get("gold", r.get("answer")))} for r in rows]
    )
    times = StepTimes()
    with Graders() as graders, tempfile.TemporaryDirectory() as folder:

        def rewards(completions: list[str], gold: list[str], **_: Any) -> list[float]:
            items = [GradeItem(PANEL.name, c, g, "stop") for c, g in zip(completions, gold, strict=True)]
            return [
                float(v.correct) + 0.2 * (PANEL.parse(c).tag_valid - 1)
                for c, v in zip(completions, graders.grade(items), strict=True)
            ]

        trainer = GRPOTrainer(
            model=str(args.model),
            reward_funcs=rewards,
            args=settings(args, folder),
            train_dataset=dataset,
            peft_config=LoraConfig(
                r=args.rank, lora_alpha=args.rank, target_modules=list(ALL_LINEAR), task_type="CAUSAL_LM"
            ),
            callbacks=[times],
        )
        trainer.train()
        history = trainer.state.log_history
    kept = times.seconds[args.warmup :]
    lengths = [h["completions/mean_length"] for h in history if "completions/mean_length" in h][args.warmup :]
    print(f"\nmedian of {len(kept)} steps {median(kept):.2f} s, mean {sum(kept) / len(kept):.2f} s")
    print(f"mean completion {sum(lengths) / max(len(lengths), 1):.0f} tokens")
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, vLLM's share included")
    if args.out:
        args.out.write_text(json.dumps({"settings": vars(args), "seconds": times.seconds, "log": history}, default=str))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--memory-fraction", type=float, default=0.3)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--liger", action="store_true")
    parser.add_argument("--search", type=int, metavar="SECONDS", default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The step of grpo_speed by TRL's GRPOTrainer with colocated vLLM: same model, prompts, reward, rollouts and LoRA.

    python -m benchmarks.grpo_trl --model DIR --problems FILE.jsonl --gib 80 --out trl.json

TRL pads every rollout to the longest, so its best micro-batch depends on the GPU's memory. The script tries the settings of
SEARCHED for `--warmup` + 3 steps each, within `--gib` of GPU memory, and then runs the fastest one for `--steps`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.grpo_speed import parser_of, read_problems
from tasks.domain.grpo.learner_config import ALL_LINEAR
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.grading.graders import GradeItem, Graders

#: The likely fastest first.
SEARCHED = (
    ("--micro-batch=16", "--liger"),
    ("--micro-batch=8",),
    ("--micro-batch=32", "--liger"),
    ("--micro-batch=16", "--gradient-checkpointing"),
    ("--micro-batch=64", "--liger", "--gradient-checkpointing"),
    ("--micro-batch=4",),
)


def main() -> None:
    parser = parser_of(__doc__)
    parser.set_defaults(memory_fraction=0.3)
    parser.add_argument("--gib", type=float, help="GPU memory to stay below; else all of it")
    parser.add_argument("--micro-batch", type=int, help="run this setting without a search")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--liger", action="store_true")
    args = parser.parse_args()
    if args.micro_batch:
        timed(args)
        return
    seconds = {setting: tried(setting, args.warmup) for setting in SEARCHED}
    best = min(seconds, key=lambda setting: seconds[setting])
    print(f"\nbest: {' '.join(best)}", flush=True)
    sys.exit(subprocess.call([sys.executable, "-m", "benchmarks.grpo_trl", *sys.argv[1:], *best]))


def tried(setting: tuple[str, ...], warmup: int) -> float:
    """Return the mean seconds per step, or infinity if the setting does not run. It has a process of its own, because it
    may run out of memory."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        short = ("--steps", str(warmup + 3), "--out", out.name)
        command = [sys.executable, "-m", "benchmarks.grpo_trl", *sys.argv[1:], *setting, *short]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            lines = ended.stderr.strip().splitlines()
            reason = next((line for line in reversed(lines) if "Error" in line), lines[-1])  # warnings may follow it
            print(f"{' '.join(setting)}: {reason[:300]}", flush=True)
            return inf
        seconds = mean(json.loads(Path(out.name).read_text())["seconds"][warmup:])
    print(f"{' '.join(setting)}: {seconds:.2f} s/step", flush=True)
    return seconds


def timed(args: argparse.Namespace) -> None:
    """Run the steps with one setting, print their times and write them to `--out`."""
    import torch
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

    if args.gib:
        torch.cuda.set_per_process_memory_fraction(args.gib * 2**30 / torch.cuda.mem_get_info()[1])
    scaffold, rollouts = SCAFFOLDS[args.scaffold], args.groups * args.group_size
    ends: list[float] = []

    class StepEnds(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            ends.append(time.perf_counter())

    with Graders() as graders, tempfile.TemporaryDirectory() as folder:

        def rewards(completions: list[str], gold: list[str], **_: Any) -> list[float]:
            items = [GradeItem(scaffold.name, c, g, "stop") for c, g in zip(completions, gold, strict=True)]
            verdicts = graders.grade(items)
            return [
                v.correct + 0.2 * (scaffold.parse(c).tag_valid - 1) for c, v in zip(completions, verdicts, strict=True)
            ]

        config = GRPOConfig(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.micro_batch,
            gradient_accumulation_steps=rollouts // args.micro_batch,
            num_generations=args.group_size,
            max_completion_length=args.max_tokens,
            beta=0.0,
            learning_rate=2e-5,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            max_grad_norm=1e9,
            scale_rewards="none",
            loss_type="dr_grpo",
            bf16=True,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=args.memory_fraction,
            vllm_max_model_length=args.max_tokens + 1024,
            vllm_importance_sampling_correction=False,
            generation_kwargs={"stop": list(scaffold.stop), "include_stop_str_in_output": True},
            gradient_checkpointing=args.gradient_checkpointing,
            use_liger_kernel=args.liger,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
        )
        problems = read_problems(args.problems).values()
        lora = LoraConfig(r=args.rank, lora_alpha=args.rank, target_modules=list(ALL_LINEAR), task_type="CAUSAL_LM")
        trainer = GRPOTrainer(
            model=str(args.model),
            reward_funcs=rewards,
            args=config,
            train_dataset=Dataset.from_list(
                [{"prompt": scaffold.prompt(p["problem"]), "gold": p["gold"]} for p in problems]
            ),
            peft_config=lora,
            callbacks=[StepEnds()],
        )
        trainer.train()
        history = trainer.state.log_history
    seconds = [after - before for before, after in pairwise(ends)]
    kept = seconds[args.warmup :]
    lengths = [h["completions/mean_length"] for h in history if "completions/mean_length" in h][args.warmup :]
    print(f"\nmedian of {len(kept)} steps {median(kept):.2f} s, mean {mean(kept):.2f} s")
    print(
        f"{mean(lengths):.0f} tokens a rollout; {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most, with vLLM's"
    )
    if args.out:
        args.out.write_text(json.dumps({"settings": vars(args), "seconds": seconds, "log": history}, default=str))


if __name__ == "__main__":
    main()

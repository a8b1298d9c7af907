"""Pretrain the demo's base model into a folder, measure it and write its model card: about six minutes.

python -m tasks.engines.demo OUT [--steps N] [--seed N]
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from storage.rules import Band, band
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.teacher import MIX
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.demo.pretrain import PretrainConfig, Pretrained, pretrain
from tasks.engines.environment import quiet_libraries
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.transformers import TransformersGenerator

#: A pool of its own: four sources of 40 problems, from a seed that no profile uses.
PER_SOURCE, POOL_SEED, GROUP_SIZE, MAX_TOKENS = 40, 101, 8, 128


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
    made = pretrain(config, given.out, 2, lambda step, loss: print(f"step {step} of {config.steps}: {loss:.3f} nats"))
    where = given.out.name if given.out.is_absolute() else given.out.as_posix()
    command = f"python -m tasks.engines.demo {where} --steps {given.steps} --seed {given.seed}"
    write_card(given.out, config, made, measure(given.out), command)


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm over the fresh pool. pass_at_1 is a mean over problems; bands are counts of problems."""

    arm: str
    pass_at_1: float
    all_zero: int
    variance: int
    all_one: int
    tag_valid: float
    mean_tokens: float
    max_tokens: int


def measure(model: Path) -> list[Measured]:
    """Sample every arm at T=1 with the reference engine: a few CPU-seconds an arm."""
    problems = demo_problems(PER_SOURCE, POOL_SEED)
    generator = TransformersGenerator(model, Hardware(device="cpu", max_num_seqs=256))
    results = []
    with Graders() as graders:
        for arm in MIX:
            s = SCAFFOLDS[arm]
            decoding = Decoding(max_tokens=MAX_TOKENS, stop=s.stop)
            texts = [s.prompt(p["problem"]) for p in problems]
            prompts = [generator.encode(t, chat=s.chat, enable_thinking=s.enable_thinking) for t in texts]
            requests = [
                Request(i * GROUP_SIZE + j, ids, i * GROUP_SIZE + j, decoding)
                for i, ids in enumerate(prompts)
                for j in range(GROUP_SIZE)
            ]
            done = sorted(generator.generate(requests, None), key=lambda c: c.key)
            golds = [problems[c.key // GROUP_SIZE]["gold"] for c in done]
            verdicts = graders.grade([GradeItem(arm, c.text, g, c.finish) for c, g in zip(done, golds, strict=True)])
            results.append(
                _summary(
                    arm,
                    [v.correct for v in verdicts],
                    [s.parse(c.text).tag_valid for c in done],
                    [len(c.token_ids) for c in done],
                )
            )
    generator.close()
    return results


def _summary(arm: str, correct: list[bool], valid: list[bool], lengths: list[int]) -> Measured:
    """One row of the card, from all rollouts in the order of problems.

    >>> m = _summary("panel", [True] * 8 + [False] * 8 + [True] * 4 + [False] * 4, [True] * 24, [10] * 24)
    >>> m.pass_at_1, m.all_zero, m.variance, m.all_one, m.mean_tokens
    (0.5, 1, 1, 1, 10.0)
    """
    n = len(correct)
    bands = Counter(band(sum(correct[i : i + GROUP_SIZE]), GROUP_SIZE) for i in range(0, n, GROUP_SIZE))
    return Measured(
        arm=arm,
        pass_at_1=sum(correct) / n,
        all_zero=bands[Band.ALL_ZERO],
        variance=bands[Band.VARIANCE],
        all_one=bands[Band.ALL_ONE],
        tag_valid=sum(valid) / n,
        mean_tokens=sum(lengths) / n,
        max_tokens=max(lengths),
    )


def write_card(out: Path, config: PretrainConfig, made: Pretrained, measured: list[Measured], command: str) -> None:
    """README.md beside the weights: how they were made and what they can do."""
    card = _CARD.format(
        command=command,
        made=made,
        settings=", ".join(f"{k} {v:g}" for k, v in asdict(config).items()),
        mix=", ".join(f"`{a}` {w:.0%}" for a, w in MIX.items()),
        problems=sum((measured[0].all_zero, measured[0].variance, measured[0].all_one)),
        group_size=GROUP_SIZE,
        seed=POOL_SEED,
        max_tokens=MAX_TOKENS,
        rows="\n".join(
            f"| `{m.arm}` | {m.pass_at_1:.3f} | {m.all_zero} / {m.variance} / {m.all_one} | {m.tag_valid:.3f}"
            f" | {m.mean_tokens:.1f} | {m.max_tokens} |"
            for m in measured
        ),
    )
    (out / "README.md").write_text(card, encoding="utf-8")


_CARD = """\
---
license: mit
library_name: transformers
pipeline_tag: text-generation
---
# The demo's base model

A Qwen3-architecture model of {made.parameters:,} parameters with a tokenizer of its own, small enough to be kept in the
repository and sampled, trained and measured on a CPU. It solves whole-number arithmetic in one to four steps, in the
forms of this project's scaffolds, and slips in ways that reinforcement learning can remove. It is good for nothing
else.

The command that makes it, and a card like this one, again:

    {command}

## How it was made

- {made.steps:,} steps in {made.seconds:.0f} seconds of wall clock on {made.threads} CPU threads (whatever else the
  machine was doing), from random weights, in float32, with torch {made.torch}. Final loss {made.loss:.3f} nats a
  completion token (smoothed).
- Settings: {settings}.
- Data: problems of `tasks/domain/problems/arithmetic.py`, levels 1 to 4, drawn afresh for every step; solutions by
  the teacher of `tasks/domain/problems/teacher.py`, which is careful or hasty and slips when hasty. Mix: {mix}.
  No third-party text.
- Prompts are exactly those of the arms; only completion tokens and the end are learnt. The scaffolds' tags and the
  fixed pieces of their prompt templates are single tokens.
- A fifth of all problem texts, chosen by their hash, is kept for pools and never pretrained on; level 5 (six steps)
  occurs in pools alone.
- Nothing is drawn but from the seed; a test repeats a short run and compares the bytes. Another number of threads,
  build of torch or kind of CPU may round differently, and then gives another model of the same kind.

## What it can do

{problems} fresh problems (seed {seed}), {group_size} rollouts each, temperature 1, at most {max_tokens} tokens, the
reference engine and the project's grader:

| arm | pass@1 | all_zero / variance / all_one | tags valid | mean tokens | longest |
|---|---|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    main()

"""The README of an adapter: description, provenance and results; a function of recipe and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem

Row = Mapping[str, object]


def model_card(
    *, base: str, licence: str | None, config: LearnerConfig, problems: Sequence[PromptProblem], steps: Sequence[Row]
) -> str:
    """Markdown with the front matter used by model hubs. steps: rows of STEPS up to this adapter."""
    step = steps[-1]["step"] if steps else 0
    sources = Counter(p.source for p in problems)
    experts = "" if config.expert_rank is None else f" ({config.expert_rank} of each expert)"
    recipe = [f"| {f.name} | {_cell(getattr(config, f.name))} |" for f in fields(config)]
    columns = ("reward_mean", "correct_mean", "tag_valid_mean", "live_groups", "length_mean", "entropy")
    kept = [row for i, row in enumerate(steps, 1) if i == 1 or i % 10 == 0 or i == len(steps)]
    table = [f"| {row['step']} | {' | '.join(_cell(row[name]) for name in columns)} |" for row in kept]
    return "\n".join(
        [
            CARD.format(
                base=base,
                licence=licence or "other",
                step=step,
                rank=f"{config.lora_rank}{experts}",
                alpha=config.lora_alpha,
                number=len(problems),
                sources=", ".join(f"{n} of {s}" for s, n in sorted(sources.items())),
                table="\n".join(table),
            ),
            *recipe,
            "",
        ]
    )


CARD = """\
---
base_model: {base}
license: {licence}
library_name: peft
pipeline_tag: text-generation
tags: [lora, grpo, reinforcement-learning]
---
# LoRA of {base} after {step} GRPO steps

Rank {rank}, alpha {alpha}, float32, never merged: serve it unmerged, since at this learning rate nearly all of its\
 update is lost in bfloat16 weights. Its licence is that of the base model.

## Data

{number} problems: {sources}.

## Training

| step | reward | correct | valid tags | live groups | tokens per rollout | entropy |
|---|---|---|---|---|---|---|
{table}

Means over the step's sampled rollouts; held-out results are in the report of the study.

## Recipe

| setting | value |
|---|---|"""


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""What an optimiser update is made of, as functions of configuration and step: its learning rate and its groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tasks.domain.grpo.curriculum import shuffled
from tasks.domain.grpo.types import LearnerConfig


def learning_rate(config: LearnerConfig, step: int) -> float:
    """Of every update of a step, counted from 1. The warm-up ends at the full rate; what falls after it (linearly, or
    as half a cosine: Loshchilov and Hutter 2016, arXiv 1608.03983, eq. 5) would be zero at the step after the last.

    >>> c = LearnerConfig(steps=6, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1,
    ...                   lr_schedule="linear", warmup_steps=2)
    >>> [learning_rate(c, step) for step in range(1, 7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step <= config.warmup_steps:
        return config.learning_rate * (step / config.warmup_steps)
    done = (step - 1 - config.warmup_steps) / (config.steps - config.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[config.lr_schedule]
    return config.learning_rate * factor


def update_groups(problem_ids: Sequence[str], config: LearnerConfig, step: int) -> list[tuple[str, ...]]:
    """The groups of each update of a step, by problem: every epoch uses each group once, dealt out to the minibatches
    in an order of its own. One minibatch keeps the order that it is given.

    >>> c = LearnerConfig(steps=1, groups_per_step=3, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
    >>> update_groups("abc", c, 1)
    [('a', 'b', 'c')]
    """
    dealt = []
    for epoch in range(config.epochs):
        ids = list(problem_ids)
        if config.minibatches > 1:
            ids = shuffled(ids, config.seed, "minibatches", step, epoch)
        dealt += [tuple(ids[part :: config.minibatches]) for part in range(config.minibatches)]
    return dealt

"""Which problems a step trains on: a function of the problems, the seed and the step, so that a resumed run goes on
where the first one stood."""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.types import LearnerConfig, PromptProblem


def shuffled(items: Sequence[str], *key: object) -> list[str]:
    """In an order that is a function of the key."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    order = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big"))).permutation(len(items))
    return [items[int(i)] for i in order]


def _epochs(items: Sequence[str], *key: object) -> Iterator[str]:
    """Without end: every item once, in a fresh order, then again."""
    epoch = 0
    while True:
        yield from shuffled(items, *key, epoch)
        epoch += 1


def _lanes(problems: Sequence[PromptProblem], config: LearnerConfig) -> dict[str, list[str]]:
    """Problem ids by what the order is balanced over; a lane per source, per subject, or one for all."""
    keys: dict[str, Callable[[PromptProblem], str]] = {
        "round_robin_by_source": lambda p: p.source,
        "balanced_by_subject": lambda p: p.subject or "",
        "proportional": lambda p: "",
    }
    if config.prompt_order not in keys:
        raise UserError(f"learner: unknown prompt_order {config.prompt_order!r}; choose from {', '.join(keys)}")
    lanes: dict[str, list[str]] = defaultdict(list)
    for problem in sorted(problems, key=lambda p: p.problem_id):
        lanes[keys[config.prompt_order](problem)].append(problem.problem_id)
    return dict(sorted(lanes.items()))


def prompt_schedule(problems: Sequence[PromptProblem], config: LearnerConfig) -> list[tuple[str, ...]]:
    """The problem ids of every step, one per group, distinct within a step.

    Lanes take turns across steps. A problem that comes up again before its step is over waits for the next one; a pool
    smaller than `groups_per_step` is used whole in every step.

    >>> c = LearnerConfig(steps=2, groups_per_step=2, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
    >>> [sorted(s) for s in prompt_schedule([PromptProblem("a", "x"), PromptProblem("b", "y")], c)]
    [['a', 'b'], ['a', 'b']]
    """
    if not problems:
        raise UserError("training: no problem is left to train on: the arm's variance band minus held-out is empty")
    lanes = _lanes(problems, config)
    fresh = {name: _epochs(ids, config.seed, "order", name) for name, ids in lanes.items()}
    waiting: dict[str, deque[str]] = {name: deque() for name in lanes}
    turns = _turns(list(lanes))
    size = min(config.groups_per_step, len(problems))
    schedule = []
    for _ in range(config.steps):
        chosen: list[str] = []
        while len(chosen) < size:
            lane = next(turns)
            if set(lanes[lane]) <= set(chosen):
                continue
            chosen.append(_next_other(fresh[lane], waiting[lane], chosen))
        schedule.append(tuple(chosen))
    return schedule


def _turns(names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from names


def _next_other(fresh: Iterator[str], waiting: deque[str], taken: Sequence[str]) -> str:
    for _ in range(len(waiting)):
        if waiting[0] not in taken:
            return waiting.popleft()
        waiting.rotate(-1)
    while (candidate := next(fresh)) in taken:
        waiting.append(candidate)
    return candidate


def extra_prompts(
    problems: Sequence[PromptProblem], config: LearnerConfig, step: int, used: Sequence[str]
) -> list[str]:
    """Problems that may replace dead groups of a step, in the order in which they are tried."""
    rest = sorted(p.problem_id for p in problems if p.problem_id not in set(used))
    return shuffled(rest, config.seed, "extra", step)

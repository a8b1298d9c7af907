"""The steps of a training: each step's problems, its learning rate, and the groups of its updates.

All of them depend only on the problems, the seed and the step, so that a resumed run continues exactly. Axis: T tokens.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import TYPE_CHECKING

import numpy as np

from tasks.domain.grpo.advantages.group import Candidate

if TYPE_CHECKING:
    from tasks.domain.grpo.learner_config import LearnerConfig
    from tasks.domain.policies import ServedAdapter


@dataclass(frozen=True, slots=True)
class PromptProblem:
    """The fields of a problem that determine the order of prompts."""

    problem_id: str
    source: str
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The sampling of one step: one group per problem.

    - policy_step: the step whose adapter samples, `staleness` steps before the previous step.
    - critic: the critic's adapter of that step, if the training has two.
    - score: returns the learner's log-probs with these weights (tasks/engines/sampling/same_policy.py); `critic=True`:
      the critic's.
    - step: number, from 1; steps + 1 is the evaluation after the last step, which has no problems.
    - evaluate: sample held-out problems in the same call.
    """

    step: int
    problem_ids: tuple[str, ...]
    group_size: int
    policy_step: int
    adapter: ServedAdapter | None
    evaluate: bool
    critic: ServedAdapter | None = None
    score: Callable[..., np.ndarray] | None = None


@dataclass(frozen=True, slots=True)
class TrainRollout:
    """One sampled and graded rollout. logprobs_T: float32 behaviour log-probs of token_ids.

    - answer: the key of the answer's class, the same in every step; None without an answer.
    - trace_class: the class of the rollout's strategy within its group.
    - candidates: the rollout's answers, if several were requested; the rollout is correct if one of them is.
    - other_tokens: tokens of the turns before and after this rollout.
    - critique: the critique of this draft, if the critic is trained too; None if it did not fit into the context.
    - of_right_draft: for a critique, whether its draft was correct; else None.
    - rewards: unweighted parts of the reward from plug-ins and the judge, by name.
    """

    problem_id: str
    source: str
    rollout: int
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs_T: np.ndarray
    correct: bool
    tag_valid: bool
    truncated: bool
    answer: str | None = None
    trace_class: int | None = None
    candidates: tuple[Candidate, ...] = ()
    other_tokens: int = 0
    critique: TrainRollout | None = None
    of_right_draft: bool | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)


def evaluated_steps(steps: int, eval_every: int) -> list[int]:
    """Return the evaluated steps: step 0, every `eval_every` steps, and the last step. Results are the last adapter's.

    >>> evaluated_steps(25, 10)
    [0, 10, 20, 25]
    """
    return sorted({*range(0, steps, eval_every), steps})


def shuffled(items: Sequence[str], *key: object) -> list[str]:
    """Return the items in a random order, for which the key is the seed."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    order = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big"))).permutation(len(items))
    return [items[int(i)] for i in order]


def _epochs(items: Sequence[str], *key: object) -> Iterator[str]:
    """Yield all items in a random order, then all again in another order, without end."""
    for epoch in count():
        yield from shuffled(items, *key, epoch)


#: How prompts are balanced: one lane (queue of problems) per source, one per subject, or one for all.
LANES: dict[str, Callable[[PromptProblem], str]] = {
    "round_robin_by_source": lambda p: p.source,
    "balanced_by_subject": lambda p: p.subject or "",
    "proportional": lambda p: "",
}


def prompt_schedule(problems: Sequence[PromptProblem], config: LearnerConfig) -> list[tuple[str, ...]]:
    """Return the problem ids of every step, one per group, distinct within a step.

    A step takes problems from all lanes in turn. A problem that would occur twice in a step waits for the next step. A
    pool smaller than `groups_per_step` is used completely in every step.

    >>> from tasks.domain.grpo.learner_config import LearnerConfig
    >>> c = LearnerConfig(steps=2, groups_per_step=2, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
    >>> [sorted(s) for s in prompt_schedule([PromptProblem("a", "x"), PromptProblem("b", "y")], c)]
    [['a', 'b'], ['a', 'b']]
    """
    lanes: dict[str, list[str]] = {}
    for lane, problem_id in sorted((LANES[config.prompt_order](p), p.problem_id) for p in problems):
        lanes.setdefault(lane, []).append(problem_id)
    fresh = {name: _epochs(ids, config.seed, "order", name) for name, ids in lanes.items()}
    waiting: dict[str, deque[str]] = {name: deque() for name in lanes}
    turns, size = cycle(lanes), min(config.groups_per_step, len(problems))
    schedule = []
    for _ in range(config.steps):
        chosen: list[str] = []
        while len(chosen) < size:
            lane = next(turns)
            if not set(lanes[lane]) <= set(chosen):
                chosen.append(_next_other(fresh[lane], waiting[lane], chosen))
        schedule.append(tuple(chosen))
    return schedule


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
    """Return the problems that may replace dead groups of a step, in order of use."""
    rest = sorted(p.problem_id for p in problems if p.problem_id not in set(used))
    return shuffled(rest, config.seed, "extra", step)


def learning_rate(config: LearnerConfig, step: int) -> float:
    """Return the learning rate of a step's updates. Steps count from 1. The last step of the warm-up has the full rate.
    A decay would reach zero one step after the last one. The decay is linear, or half a cosine (Loshchilov and Hutter
    2016, arXiv 1608.03983, eq. 5).

    >>> from tasks.domain.grpo.learner_config import LearnerConfig
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
    """Return the groups of each update of a step, by problem. Every epoch divides all groups among its minibatches, in
    an order of its own. A single minibatch keeps the given order.

    >>> from tasks.domain.grpo.learner_config import LearnerConfig
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

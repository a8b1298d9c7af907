"""What a step's rollouts earn: rewards, groups as an objective sees them, advantages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.domain.grpo.advantages.brought import made_up
from tasks.domain.grpo.advantages.group import Context, Group, is_live
from tasks.domain.grpo.advantages.registry import OWN, group_advantages
from tasks.domain.grpo.objective_state import ObjectiveState
from tasks.domain.grpo.rewards import reward
from tasks.domain.grpo.types import LearnerConfig, TrainRollout

#: A step's rollouts by problem.
Groups = Mapping[str, Sequence[TrainRollout]]


@dataclass(frozen=True, slots=True)
class Credit:
    """advantages: by problem, float64, in the order of its rollouts. diagnostics: means over the step's groups of what
    the objective says, and `signal_groups`, the share of groups that have an advantage. trains: a group is live, or has
    one though its rewards are alike."""

    advantages: Mapping[str, np.ndarray]
    diagnostics: Mapping[str, float]
    trains: bool


def group_rewards(group: Sequence[TrainRollout], config: LearnerConfig) -> list[float]:
    return [
        reward(
            correct=r.correct,
            tag_valid=r.tag_valid,
            tag_weight=config.tag_weight,
            num_tokens=len(r.token_ids),
            max_tokens=config.max_tokens,
            overlong_cache=config.overlong_cache,
        ).total
        for r in group
    ]


def seen_by_objective(group: Sequence[TrainRollout], config: LearnerConfig) -> Group:
    return Group(
        np.array(group_rewards(group, config), dtype=np.float64),
        np.array([r.correct for r in group], dtype=np.float64),
        group[0].problem_id,
        tuple(r.answer for r in group),
        tuple(r.trace_class for r in group),
        tuple(r.candidates for r in group),
        tuple(r.of_right_draft for r in group if r.of_right_draft is not None),
    )


def context_of(config: LearnerConfig) -> Context:
    """Of no step yet."""
    return Context(
        k=config.advantage_k,
        bonus=config.bonus,
        gated=config.bonus_gate == "right",
        bonus_baseline=config.bonus_baseline,
    )


def try_brought(config: LearnerConfig) -> None:
    """Errors: UserError for an objective of another package that cannot weigh a made-up group: said before anything is
    sampled for it."""
    if config.advantage not in OWN:
        group = made_up(config.group_size)
        group_advantages(group, config.advantage, replace(context_of(config), step=(group,)))


def credited(groups: Groups, config: LearnerConfig, state: ObjectiveState) -> Credit:
    """Of a whole step, whose groups an objective may weigh against one another."""
    seen = {problem_id: seen_by_objective(group, config) for problem_id, group in groups.items()}
    context = replace(context_of(config), visits=state.visits, step=tuple(seen.values()))
    found = {problem_id: group_advantages(group, config.advantage, context) for problem_id, group in seen.items()}
    told: dict[str, list[float]] = defaultdict(list)
    for advantages_G, diagnostics in found.values():
        told["signal_groups"].append(float(advantages_G.any()))
        for name, value in diagnostics.items():
            told[name].append(value)
    return Credit(
        {problem_id: advantages_G for problem_id, (advantages_G, _) in found.items()},
        {name: float(np.mean(values)) for name, values in told.items()},
        any(told["signal_groups"]) or any(is_live(group.rewards_G.tolist()) for group in seen.values()),
    )

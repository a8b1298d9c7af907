"""What of a step's rollouts is trained on, and what each token weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasks.domain.grpo.credit import Credit, Groups, credited
from tasks.domain.grpo.losses import WeighTokens
from tasks.domain.grpo.objective_state import ObjectiveState
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.domain.grpo.types import LearnerConfig, TrainRollout


def trained_groups(groups: Groups, config: LearnerConfig, credit: Credit | None = None) -> list[PromptGroup]:
    """What has a gradient, with each rollout's advantage; `index` counts the rollouts of these groups. None of it
    without a live group in the step; with one, KL to the start and entropy pull at every rollout.

    credit: of the whole step, some of whose groups these are; null: they are all.
    """
    credit = credit or credited(groups, config, ObjectiveState())
    if not credit.trains:
        return []
    trained, index = [], 0
    pulls = config.kl_weight or config.entropy_weight or config.entropy_target
    for problem_id, group in groups.items():
        by_prompt: dict[tuple[int, ...], list[Trajectory]] = {}
        for i, (r, a) in enumerate(zip(group, credit.advantages[problem_id], strict=True)):
            if (a != 0 or pulls) and np.isfinite(r.logprobs_T).any() and not is_masked(r, config):
                one = Trajectory(index + i, r.token_ids, r.logprobs_T, float(a))
                by_prompt.setdefault(tuple(r.prompt_ids), []).append(one)
        index += len(group)
        trained += [PromptGroup(prompt, trajectories) for prompt, trajectories in by_prompt.items()]
    return trained


def weighed_tokens(
    groups: Sequence[PromptGroup], weigh: WeighTokens, config: LearnerConfig, key: Sequence[object]
) -> list[PromptGroup]:
    """The same, with what each token weighs among all that have an advantage; none may have one where KL or entropy
    pulls. key: what a draw is a function of."""
    known = [(t, np.isfinite(t.behaviour_T)) for g in groups for t in g.trajectories if t.advantage]
    if not known:
        return list(groups)
    logprobs_T = np.concatenate([t.behaviour_T[kept] for t, kept in known])
    advantages_T = np.concatenate([np.full(kept.sum(), t.advantage) for t, kept in known])
    found = weigh(logprobs_T.astype(np.float64), advantages_T, config, key)
    places, start = {}, 0
    for t, kept in known:
        weights = _plain_weights(len(kept))
        weights[:, kept] = np.stack([found.term_T, found.kl_T])[:, start : start + kept.sum()]
        places[t.index], start = weights, start + int(kept.sum())
    return [
        PromptGroup(
            g.prompt_ids,
            [replace(t, weights=places.get(t.index, _plain_weights(len(t.token_ids)))) for t in g.trajectories],
        )
        for g in groups
    ]


def _plain_weights(length: int) -> np.ndarray:
    return np.stack([np.ones(length, np.float32), np.zeros(length, np.float32)])


def is_masked(rollout: TrainRollout, config: LearnerConfig) -> bool:
    return config.truncated == "mask" and rollout.truncated

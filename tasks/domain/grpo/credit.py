"""Credit of a training step: its groups as inputs of an objective, their advantages, the state of the objective, and
the rollouts with a gradient."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from tasks.domain.grpo.advantages.group import Context, Group, Visits, is_live
from tasks.domain.grpo.advantages.registry import ADVANTAGES, OWN, group_advantages, made_up
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import WeighTokens
from tasks.domain.grpo.packing import PromptGroup, Trajectory
from tasks.domain.grpo.rewards import parts, total
from tasks.domain.grpo.steps import TrainRollout

#: A step's rollouts by problem.
Groups = Mapping[str, Sequence[TrainRollout]]


@dataclass(frozen=True, slots=True)
class Credit:
    """The credit of a step.

    - advantages: by problem, float64, in the order of its rollouts.
    - diagnostics: means of the objective's diagnostics over the groups; `signal_groups`: share with an advantage.
    - trains: whether at least one group has unequal rewards or an advantage.
    """

    advantages: Mapping[str, np.ndarray]
    diagnostics: Mapping[str, float]
    trains: bool


def group_rewards(group: Sequence[TrainRollout], config: LearnerConfig) -> list[float]:
    return [total(rollout, config) for rollout in group]


def reward_means(groups: Groups, config: LearnerConfig) -> dict[str, float]:
    """Return the mean of each part of the reward over a step's rollouts; empty if the training names no parts."""
    each = [parts(rollout, config) for group in groups.values() for rollout in group if config.rewards]
    return {f"reward_{name}": float(np.mean([one[name] for one in each])) for name in (each[0] if each else ())}


def seen_by_objective(group: Sequence[TrainRollout], config: LearnerConfig) -> Group:
    return Group(
        np.array(group_rewards(group, config), dtype=np.float64),
        np.array([r.correct for r in group], dtype=np.float64),
        group[0].problem_id,
        tuple(r.answer for r in group),
        tuple(r.trace_class for r in group),
        tuple(r.candidates for r in group),
        tuple(r.of_right_draft for r in group if r.of_right_draft is not None),
        tuple(len(r.token_ids) for r in group),
    )


def context_of(config: LearnerConfig) -> Context:
    """Return the context of the first step."""
    return Context(
        k=config.advantage_k,
        bonus=config.bonus,
        gated=config.bonus_gate == "right",
        bonus_baseline=config.bonus_baseline,
    )


def try_objective(config: LearnerConfig) -> None:
    """Try another package's objective on an invented group before sampling. Raise UserError if the objective fails."""
    if config.advantage not in OWN:
        group = made_up(config.group_size)
        group_advantages(group, config.advantage, replace(context_of(config), step=(group,)))


def credited(groups: Groups, config: LearnerConfig, state: "ObjectiveState") -> Credit:
    """Return the credit of a step. All groups are needed at once, because some objectives compare them."""
    seen = {problem_id: seen_by_objective(group, config) for problem_id, group in groups.items()}
    context = replace(context_of(config), visits=state.visits, step=tuple(seen.values()))
    found = {problem_id: group_advantages(group, config.advantage, context) for problem_id, group in seen.items()}
    values_of: dict[str, list[float]] = defaultdict(list)
    for advantages_G, diagnostics in found.values():
        values_of["signal_groups"].append(float(advantages_G.any()))
        for name, value in diagnostics.items():
            values_of[name].append(value)
    return Credit(
        {problem_id: advantages_G for problem_id, (advantages_G, _) in found.items()},
        {name: float(np.mean(values)) for name, values in values_of.items()},
        any(values_of["signal_groups"]) or any(is_live(group.rewards_G.tolist()) for group in seen.values()),
    )


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """The state of an objective between two steps.

    - visits: counts of each problem's answers, if the objective needs them.
    - entropy: at the last step with an update.
    - entropy_coefficient: the adapted weight of the entropy bonus; None before the first step, where the weight is the
      setting `entropy_weight`.
    - critic: the state of the second agent, if a training has one.
    """

    visits: Visits = field(default_factory=dict)
    entropy: float | None = None
    entropy_coefficient: float | None = None
    critic: "ObjectiveState | None" = None

    def entropy_weight(self, config: LearnerConfig) -> float:
        """Return the weight of the entropy bonus in the next step. If there is a target, the weight is 0 while the
        entropy is above it (Skywork-OR1, He et al. 2025, arXiv 2505.22312, section 3.2.5)."""
        if config.entropy_target is None:
            return config.entropy_weight
        if self.entropy is not None and self.entropy > config.entropy_target:
            return 0.0
        return self._coefficient(config)

    def after(self, groups: Iterable[Group], entropy: float | None, config: LearnerConfig) -> "ObjectiveState":
        """Return the state after a step. The entropy coefficient rises by `entropy_delta` if the entropy is below the
        target, and else falls by it, but not below zero. entropy: mean over trained tokens, or None."""
        visits = _counted(self.visits, groups) if "visits" in ADVANTAGES[config.advantage].needs else self.visits
        if config.entropy_target is None or entropy is None:
            return ObjectiveState(visits, self.entropy, self.entropy_coefficient)
        move = config.entropy_delta if entropy < config.entropy_target else -config.entropy_delta
        return ObjectiveState(visits, entropy, max(0.0, self._coefficient(config) + move))

    def _coefficient(self, config: LearnerConfig) -> float:
        return config.entropy_weight if self.entropy_coefficient is None else self.entropy_coefficient

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        critic = kept.get("critic")
        return cls(**{**kept, "critic": critic and cls.from_json(critic)})


def _counted(visits: Visits, groups: Iterable[Group]) -> Visits:
    """Return the counts of answers plus those of these groups.

    >>> from numpy import ones
    >>> _counted({"p": {"7": 2}}, [Group(ones(3), ones(3), "p", ("7", "3", None))])
    {'p': {'7': 3, '3': 1}}
    """
    counted = {problem: dict(answers) for problem, answers in visits.items()}
    for group in groups:
        answers = counted.setdefault(group.problem_id, {})
        for answer, number in Counter(a for a in group.answers if a is not None).items():
            answers[answer] = answers.get(answer, 0) + number
    return counted


def trained_groups(groups: Groups, config: LearnerConfig, credit: Credit | None = None) -> list[PromptGroup]:
    """Return the groups with a gradient, each rollout with its advantage; empty if no group of the step trains. With a
    KL or entropy term every rollout has a gradient. `index` numbers the rollouts of all groups. credit: of the whole
    step, which may have more groups; None computes it from these groups."""
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
    """Return the same groups with weights for each token, which `weigh` computes from all tokens with an advantage.
    Without such tokens (only a KL or entropy term acts) the groups have no weights. key: seed of random choices."""
    known = [(t, np.isfinite(t.behaviour_T)) for g in groups for t in g.trajectories if t.advantage]
    if not known:
        return list(groups)
    logprobs_T = np.concatenate([t.behaviour_T[kept] for t, kept in known])
    advantages_T = np.concatenate([np.full(kept.sum(), t.advantage) for t, kept in known])
    found_2T = np.stack(weigh(logprobs_T.astype(np.float64), advantages_T, config, key))
    ends = np.cumsum([kept.sum() for _, kept in known])[:-1]
    parts = {t.index: (kept, part) for (t, kept), part in zip(known, np.split(found_2T, ends, axis=1), strict=True)}

    def weighed(t: Trajectory) -> Trajectory:
        weights = np.stack([np.ones(len(t.token_ids), np.float32), np.zeros(len(t.token_ids), np.float32)])
        if t.index in parts:
            kept, part = parts[t.index]
            weights[:, kept] = part
        return replace(t, weights=weights)

    return [PromptGroup(g.prompt_ids, list(map(weighed, g.trajectories))) for g in groups]


def is_masked(rollout: TrainRollout, config: LearnerConfig) -> bool:
    return config.truncated == "mask" and rollout.truncated

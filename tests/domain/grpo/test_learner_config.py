"""The settings of a training: which stand together, its rewards, its two agents, and what is kept of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.advantages.group import Context, Group
from tasks.domain.grpo.advantages.registry import group_advantages
from tasks.domain.grpo.credit import ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm, parts, total
from tasks.domain.grpo.steps import TrainRollout

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)


# Rewards as weighted sums of parts.


OVERLONG = replace(CONFIG, max_tokens=100, overlong_cache=20)


def rollout(*, correct: bool = False, tag_valid: bool = True, tokens: int = 1) -> TrainRollout:
    return TrainRollout("p", "s", 0, [1], [1] * tokens, np.zeros(tokens, np.float32), correct, tag_valid, False)


def test_by_default_a_broken_form_costs_and_a_sound_one_earns_nothing() -> None:
    outcomes = [
        rollout(correct=c, tag_valid=t) for c, t in [(True, True), (True, False), (False, True), (False, False)]
    ]
    assert [total(one, CONFIG) for one in outcomes] == [1.0, 0.8, 0.0, -0.2]
    assert total(outcomes[1], replace(CONFIG, tag_weight=0.0)) == 1.0


def test_the_last_tokens_before_the_cap_cost_more_and_more() -> None:
    """Of 100 tokens the last 20 are the cache: nothing at 80, a quarter at 85, all at the cap."""
    rollouts = [rollout(correct=True, tag_valid=False, tokens=n) for n in (80, 85, 100)]
    assert [parts(one, OVERLONG)["overlong"] for one in rollouts] == [0.0, -0.25, -1.0]
    assert [total(one, OVERLONG) for one in rollouts] == pytest.approx([0.8, 0.55, -0.2])


def test_named_parts_replace_the_default_ones() -> None:
    rewards = tuple(RewardTerm(name=n, weight=w) for n, w in [("correct", 2.0), ("format", 0.5), ("length", 0.1)])
    config = replace(CONFIG, rewards=rewards)
    assert parts(rollout(correct=True, tokens=500), config) == {"correct": 2.0, "format": 0.5, "length": -0.05}
    assert total(rollout(tag_valid=False, tokens=500), config) == -0.05


def groups(*answers: str | None) -> list[Group]:
    nothing = np.zeros(len(answers))
    return [Group(nothing, nothing, "p", answers)]


def test_visits_are_counted_where_an_objective_asks_for_them() -> None:
    counting = replace(CONFIG, advantage="ucb_mean")
    once = ObjectiveState().after(groups("3", "3", None), 0.5, counting)
    twice = once.after(groups("3", "4"), 0.5, counting)
    assert once.visits == {"p": {"3": 2}} and twice.visits == {"p": {"3": 3, "4": 1}}
    assert ObjectiveState().after(groups("3"), 0.5, CONFIG).visits == {}


def test_the_entropy_weight_follows_its_target() -> None:
    """Up by delta below the target, down above it and then at rest, never under zero."""
    aimed = replace(CONFIG, entropy_weight=0.01, entropy_target=0.5, entropy_delta=0.004)
    state = ObjectiveState()
    assert state.entropy_weight(aimed) == 0.01
    weights = []
    for entropy in (0.4, 0.3, 0.6, None, 0.2):
        state = state.after([], entropy, aimed)
        weights.append(round(state.entropy_weight(aimed), 9))
    assert weights == [0.014, 0.018, 0.0, 0.0, 0.018]
    for _ in range(9):
        state = state.after([], 0.9, aimed)
    assert state.entropy_coefficient == 0.0


# Generator and critic: what each one's rollouts weigh, by hand and in general.


critiques = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=16)


def found(*of: tuple[bool, bool]) -> np.ndarray:
    """Of critiques: (refinement right, draft right)."""
    right = np.array([float(r) for r, _ in of])
    group = Group(right, right, "p", of_right_drafts=tuple(draft for _, draft in of))
    return group_advantages(group, "multi_agent", Context())[0]


@given(critiques)
def test_halves_are_alike_and_together_what_right_ones_weigh(of: list[tuple[bool, bool]]) -> None:
    advantages, size = found(*of), len(of)
    num_right = sum(right for right, _ in of)
    assert advantages.sum() == pytest.approx(num_right * (1 - num_right / size))
    assert not advantages[[not right for right, _ in of]].any() and (advantages >= 0).all()
    kept, mended = (advantages[[r and d is draft for r, d in of]].sum() for draft in (True, False))
    if kept and mended:
        assert kept == pytest.approx(mended)

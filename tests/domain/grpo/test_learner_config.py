"""The settings of a training: which stand together, its rewards, its two agents, and what is kept of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Context, Group
from tasks.domain.grpo.advantages.registry import group_advantages
from tasks.domain.grpo.credit import ObjectiveState
from tasks.domain.grpo.learner_config import LearnerConfig, check_overlong
from tasks.domain.grpo.rewards import RewardTerm, parts, total
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.policies import Sampling

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"group_size": 1}, "group_size is 1"),
        ({"advantage": "zscore"}, "unknown advantage 'zscore'"),
        ({"advantage": "pkpo"}, r"pkpo needs 4 attempts \(advantage_k\) of 2"),
        ({"advantage": "pass_at_k", "advantage_k": 2}, "pass_at_k compares choices of 2 attempts .* of 2"),
        ({"advantage": "pkpo", "advantage_k": 1}, "pkpo needs at least 2 attempts"),
        ({"advantage": "entropic"}, "entropic needs a group_size of 3, not 2"),
        ({"overlong_cache": 64, "max_tokens": 64}, "set max_tokens to the longest completion, above it"),
        ({"token_budget": 9, "staleness": 1}, "staleness, which samples one step more"),
        ({"token_budget": 9, "lr_schedule": "linear"}, "lr_schedule=linear falls by steps"),
        ({"target_modules": ()}, "target_modules is"),
        ({"lora_rank": 8, "expert_rank": 8}, "expert_rank is 8; it must be below lora_rank, which is 8"),
        ({"lora_rank": 8, "expert_rank": 4, "target_modules": ("q_proj",)}, "beside other layers; leave it out"),
        ({"minibatches": 2}, "minibatches is 2, above groups_per_step"),
    ],
)
def test_settings_that_cannot_stand_together_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **wrong)


def test_a_punishment_that_no_completion_reaches_is_refused() -> None:
    """It begins after 80 tokens; a cap of 81 reaches it."""
    punished = replace(CONFIG, max_tokens=100, overlong_cache=20)
    check_overlong(punished, Sampling(max_tokens=81))
    with pytest.raises(UserError, match="begins after 80 tokens, but rollouts end at 80"):
        check_overlong(punished, Sampling(max_tokens=80))


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


@pytest.mark.parametrize(
    ("rewards", "changes", "refusal"),
    [
        (["corect"], {}, "unknown reward 'corect'; did you mean 'correct'?"),
        (["correct", "correct"], {}, "names one part twice"),
        (["correct", "overlong"], {}, "belong together"),
        (["correct"], {"max_tokens": 100, "overlong_cache": 20}, "belong together"),
        (["judge"], {}, "reward judge: set its model"),
        (["format"], {"advantage": "max_rl"}, "give the reward 'correct' a weight of 1"),
    ],
)
def test_parts_that_cannot_stand_together_are_refused(rewards: list[str], changes: dict, refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        replace(CONFIG, rewards=tuple(RewardTerm(name=name) for name in rewards), **changes)
    assert refusal in str(refused.value)


@pytest.mark.parametrize("more", [{"model": "m"}, {"rubric": "Is it brief?"}])
def test_a_model_and_a_rubric_are_refused_except_for_a_judge(more: dict) -> None:
    with pytest.raises(UserError, match="reward correct: only the reward 'judge' has a model and a rubric"):
        replace(CONFIG, rewards=(RewardTerm(name="correct", **more),))


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


def test_a_state_survives_json_to_the_bit() -> None:
    state = ObjectiveState({"p": {"1/3": 2}}, entropy=0.1 + 0.2, entropy_coefficient=1 / 3)
    assert ObjectiveState.from_json(json.loads(json.dumps(state.as_json()))) == state


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

"""Rewards as weighted sums of parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm, parts, total
from tasks.domain.grpo.steps import TrainRollout

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
OVERLONG = replace(CONFIG, max_tokens=100, overlong_cache=20)


def rollout(*, correct: bool = False, tag_valid: bool = True, tokens: int = 1) -> TrainRollout:
    return TrainRollout("p", "s", 0, [1], [1] * tokens, np.zeros(tokens, np.float32), correct, tag_valid, False)


def test_by_default_a_broken_form_costs_and_a_sound_one_earns_nothing() -> None:
    outcomes = [
        rollout(correct=c, tag_valid=t) for c, t in [(True, True), (True, False), (False, True), (False, False)]
    ]
    assert [total(one, CONFIG) for one in outcomes] == [1.0, 0.8, 0.0, -0.2]
    assert total(outcomes[1], replace(CONFIG, tag_weight=0.0)) == 1.0


def test_what_costs_the_same_is_the_same_number() -> None:
    """-0.2 - 0.1 and -0.3 in floats are two, and a group of them would train on the last digit."""
    config = replace(OVERLONG, overlong_cache=10)
    broken, sound = rollout(tag_valid=False, tokens=91), rollout(tokens=93)
    assert total(broken, config) == total(sound, config) == -0.3


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
        (["format"], {"advantage": "max_rl"}, "give the reward 'correct' a weight of 1"),
    ],
)
def test_parts_that_cannot_stand_together_are_refused(rewards: list[str], changes: dict, refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        replace(CONFIG, rewards=tuple(RewardTerm(name=name) for name in rewards), **changes)
    assert refusal in str(refused.value)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.bands import band
from storage.errors import UserError
from tasks.domain.grpo.rewards import reward
from tasks.domain.grpo.types import ADVANTAGES, LearnerConfig, centred, group_advantages, is_live, leave_one_out

CONFIG = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
rewards = st.lists(st.sampled_from([1.0, 0.8, 0.0, -0.2]), min_size=2, max_size=16)


@given(rewards, st.sampled_from(sorted(ADVANTAGES)))
def test_advantages_sum_to_zero_and_keep_the_order(group: list[float], kind: str) -> None:
    advantages = group_advantages(group, kind)
    assert abs(advantages.sum()) < 1e-9
    for i, j in zip(range(len(group)), range(1, len(group)), strict=False):
        assert np.sign(advantages[i] - advantages[j]) == np.sign(group[i] - group[j]) or is_live(group) is False


@given(st.floats(-2, 2), st.integers(2, 16), st.sampled_from(sorted(ADVANTAGES)))
def test_a_dead_group_has_exactly_no_advantage(value: float, size: int, kind: str) -> None:
    assert not group_advantages([value] * size, kind).any()


@given(rewards)
def test_leave_one_out_is_what_its_name_says(group: list[float]) -> None:
    values = np.array(group)
    by_hand = [v - np.delete(values, i).mean() for i, v in enumerate(values)]
    assert np.allclose(leave_one_out(values), by_hand)
    assert np.allclose(leave_one_out(values), centred(values) * len(group) / (len(group) - 1))


def test_all_wrong_with_mixed_tags_is_all_zero_although_it_is_live() -> None:
    tags = [True, False, True, True]
    group = [reward(correct=False, tag_valid=t, tag_weight=0.2).total for t in tags]
    assert band(0, 4) == "all_zero"
    assert is_live(group)
    assert group_advantages(group, "centred") == pytest.approx([0.05, -0.15, 0.05, 0.05])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"group_size": 1}, "group_size is 1"),
        ({"advantage": "zscore"}, "unknown advantage 'zscore'"),
        ({"target_modules": ()}, "target_modules is empty"),
        ({"epochs": 0}, "epochs is 0"),
        ({"kl_weight": -0.1}, "kl_weight is -0.1"),
        ({"minibatches": 2}, "2 minibatches of 1 groups"),
        ({"warmup_steps": 2}, "warmup_steps is 2 of 1 steps; the full rate is never reached"),
        ({"lr_schedule": "step"}, "unknown lr_schedule 'step'; choose from constant, linear, cosine"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        replace(CONFIG, **wrong)

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import learning_rate, update_groups

CONFIG = LearnerConfig(steps=4, groups_per_step=4, group_size=2, learning_rate=0.8, lora_rank=1, lora_alpha=1)


def rates(config: LearnerConfig) -> list[float]:
    return [learning_rate(config, step) for step in range(1, config.steps + 1)]


def test_schedules_by_hand() -> None:
    assert rates(CONFIG) == [0.8] * 4
    assert rates(replace(CONFIG, warmup_steps=4)) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert rates(replace(CONFIG, lr_schedule="linear")) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    half = math.sqrt(2) / 2
    assert rates(replace(CONFIG, lr_schedule="cosine")) == pytest.approx([0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)])
    assert rates(replace(CONFIG, lr_schedule="linear", warmup_steps=2)) == pytest.approx([0.4, 0.8, 0.8, 0.4])


@given(st.integers(1, 50), st.integers(0, 50), st.sampled_from(["constant", "linear", "cosine"]))
def test_rates_rise_to_the_full_one_and_never_fall_to_zero(steps: int, rise: int, schedule: str) -> None:
    warmup = min(rise, steps)
    found = rates(replace(CONFIG, steps=steps, warmup_steps=warmup, lr_schedule=schedule))
    assert all(0 < rate <= 0.8 for rate in found)
    assert found[:warmup] == sorted(found[:warmup]) and found[warmup:] == sorted(found[warmup:], reverse=True)
    assert max(found) == 0.8
    assert warmup == steps or found[warmup] == 0.8


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_every_epoch_uses_every_group_once(groups: int, minibatches: int, epochs: int, step: int) -> None:
    config = replace(CONFIG, groups_per_step=9, minibatches=minibatches, epochs=epochs)
    ids = [f"p{i}" for i in range(groups)]
    parts = update_groups(ids, config, step)
    assert len(parts) == minibatches * epochs
    for epoch in range(epochs):
        used = parts[epoch * minibatches : (epoch + 1) * minibatches]
        assert Counter(p for part in used for p in part) == Counter(ids)
        assert max(map(len, used)) - min(map(len, used)) <= 1

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import PromptProblem, extra_prompts, prompt_schedule

CONFIG = LearnerConfig(steps=10, groups_per_step=4, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
POOL = [PromptProblem(f"{s}{i}", s, f"t{i % 2}") for s, n in (("a", 12), ("b", 3), ("c", 5)) for i in range(n)]


def test_sources_take_turns_whatever_their_size() -> None:
    drawn = [p[0] for step in prompt_schedule(POOL, CONFIG) for p in step]
    assert drawn == list("abc" * 14)[:40]


def test_proportional_uses_every_problem_once_an_epoch() -> None:
    drawn = [p for step in prompt_schedule(POOL, replace(CONFIG, prompt_order="proportional")) for p in step]
    assert set(Counter(drawn).values()) == {2}


def test_subjects_are_balanced() -> None:
    subject = {p.problem_id: p.subject for p in POOL}
    for step in prompt_schedule(POOL, replace(CONFIG, prompt_order="balanced_by_subject")):
        assert Counter(subject[p] for p in step) == {"t0": 2, "t1": 2}


@given(st.integers(0, 5), st.integers(1, 9), st.sampled_from(["round_robin_by_source", "proportional"]))
def test_distinct_within_a_step_and_the_same_whatever_the_pools_order(seed: int, groups: int, order: str) -> None:
    config = replace(CONFIG, seed=seed, groups_per_step=groups, prompt_order=order)
    schedule = prompt_schedule(POOL, config)
    assert all(len(set(step)) == len(step) == groups for step in schedule)
    assert schedule == prompt_schedule(POOL[::-1], config)
    assert schedule[:4] == prompt_schedule(POOL, replace(config, steps=4))


def test_a_pool_smaller_than_a_step_is_used_whole() -> None:
    assert all(sorted(s) == ["a0", "a1"] for s in prompt_schedule(POOL[:2], CONFIG))


def test_an_empty_band_is_said_before_anything_is_sampled() -> None:
    with pytest.raises(UserError, match="variance band"):
        prompt_schedule([], CONFIG)


def test_replacements_leave_out_what_the_step_used() -> None:
    used = ("a0", "b1")
    extra = extra_prompts(POOL, CONFIG, 3, used)
    assert sorted([*extra, *used]) == sorted(p.problem_id for p in POOL)
    assert extra != extra_prompts(POOL, CONFIG, 4, used)

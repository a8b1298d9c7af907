"""Steps of a training: their prompts, learning rates, updates and packs."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack, pack_cost, plan_packs, plan_shares
from tasks.domain.grpo.steps import PromptProblem, extra_prompts, learning_rate, prompt_schedule, update_groups

CONFIG = LearnerConfig(steps=10, groups_per_step=4, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1)
POOL = [PromptProblem(f"{s}{i}", s, f"t{i % 2}") for s, n in (("a", 12), ("b", 3), ("c", 5)) for i in range(n)]


def test_sources_take_turns_whatever_their_size() -> None:
    drawn = [p[0] for step in prompt_schedule(POOL, CONFIG) for p in step]
    assert drawn == list("abc" * 14)[:40]


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


def test_replacements_leave_out_what_the_step_used() -> None:
    used = ("a0", "b1")
    extra = extra_prompts(POOL, CONFIG, 3, used)
    assert sorted([*extra, *used]) == sorted(p.problem_id for p in POOL)
    assert extra != extra_prompts(POOL, CONFIG, 4, used)


SCHEDULES_CONFIG = LearnerConfig(steps=4, groups_per_step=4, group_size=2, learning_rate=0.8, lora_rank=1, lora_alpha=1)


def rates(config: LearnerConfig) -> list[float]:
    return [learning_rate(config, step) for step in range(1, config.steps + 1)]


def test_schedules_by_hand() -> None:
    assert rates(SCHEDULES_CONFIG) == [0.8] * 4
    assert rates(replace(SCHEDULES_CONFIG, warmup_steps=4)) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert rates(replace(SCHEDULES_CONFIG, lr_schedule="linear")) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    half = math.sqrt(2) / 2
    assert rates(replace(SCHEDULES_CONFIG, lr_schedule="cosine")) == pytest.approx(
        [0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)]
    )
    assert rates(replace(SCHEDULES_CONFIG, lr_schedule="linear", warmup_steps=2)) == pytest.approx([0.4, 0.8, 0.8, 0.4])


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_every_epoch_uses_every_group_once(groups: int, minibatches: int, epochs: int, step: int) -> None:
    config = replace(SCHEDULES_CONFIG, groups_per_step=9, minibatches=minibatches, epochs=epochs)
    ids = [f"p{i}" for i in range(groups)]
    parts = update_groups(ids, config, step)
    assert len(parts) == minibatches * epochs
    for epoch in range(epochs):
        used = parts[epoch * minibatches : (epoch + 1) * minibatches]
        assert Counter(p for part in used for p in part) == Counter(ids)
        assert max(map(len, used)) - min(map(len, used)) <= 1


def trajectory(index: int, *token_ids: int, advantage: float = 1.0) -> Trajectory:
    return Trajectory(index, token_ids, -np.arange(len(token_ids), dtype=np.float32), advantage)


def test_a_pack_by_hand() -> None:
    """Prompt [7, 8] shared by completions [1, 2, 3] and [4]; last tokens are predicted but are no rows."""
    pack = build_pack([PromptGroup([7, 8], [trajectory(0, 1, 2, 3), trajectory(1, 4, advantage=-1.0)])])
    assert pack.tokens_T.tolist() == [7, 8, 1, 2]
    assert pack.positions_T.tolist() == [0, 1, 2, 3]
    assert pack.starts_q.tolist() == [0, 2, 4]
    assert pack.starts_k.tolist() == [0, 2, 6]
    assert pack.key_rows.tolist() == [0, 1, 0, 1, 2, 3]
    assert pack.rows_K.tolist() == [1, 2, 3, 1]
    assert pack.targets_K.tolist() == [1, 2, 3, 4]
    assert pack.advantages_K.tolist() == [1, 1, 1, -1]
    assert pack.behaviour_K.tolist() == [0, -1, -2, 0]
    assert pack.rollout_K.tolist() == [0, 0, 0, 1]


lengths = st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 20), min_size=1, max_size=6)), max_size=6)


@given(lengths, st.integers(1, 80))
def test_plans_hold_every_rollout_once_and_keep_to_the_budget(shape: list[tuple[int, list[int]]], budget: int) -> None:
    index, groups = 0, []
    for prompt, completions in shape:
        members = []
        for length in completions:
            members.append(trajectory(index, *range(length)))
            index += 1
        groups.append(PromptGroup(list(range(prompt)), members))
    packs = plan_packs(groups, budget)
    assert sorted(t.index for p in packs for g in p for t in g.trajectories) == list(range(index))
    for pack in packs:
        rows = sum(len(g.prompt_ids) + sum(len(t.token_ids) - 1 for t in g.trajectories) for g in pack)
        assert rows <= budget or sum(len(g.trajectories) for g in pack) == 1
        assert len(build_pack(pack).tokens_T) == rows


def of_lengths(*completions: Sequence[int], prompt: int = 2) -> list[PromptGroup]:
    numbers = iter(range(10**6))
    return [PromptGroup([0] * prompt, [trajectory(next(numbers), *[0] * n) for n in group]) for group in completions]


def test_cost_of_a_pack_by_hand() -> None:
    """Rows 2 + 100 + 50 and 600 of reading the weights; pairs: the prompt's 2 x 2 / 2, then 100 x (2 + 50) and
    50 x (2 + 25), 5,000 of them a row."""
    assert pack_cost(of_lengths([101, 51])) == 600 + 152 + (2 + 5200 + 1350) / 5000


def test_the_longest_packs_are_dealt_first_and_each_share_keeps_their_order() -> None:
    """Rows of the packs 12, 22, 32, 42 of a budget that each group fills: 42 | 32, then 22 to the second, 12 to the first."""
    groups = of_lengths([11], [21], [31], [41])
    assert [[p[0].trajectories[0].index for p in share] for share in plan_shares(groups, 5, 2)] == [[0, 3], [1, 2]]
    assert [[p[0].trajectories[0].index for p in share] for share in plan_shares(groups, 5, 1)] == [[0, 1, 2, 3]]


@given(st.integers(0, 10**6), st.sampled_from([2, 4]))
def test_shares_of_long_tailed_rollouts_are_about_equal(seed: int, world: int) -> None:
    """A step of the published shape: 8 x 16 rollouts, log-normal, cut at 12,288 tokens; two processes of it are to gain
    1.8 times at least, of which this is the bound."""
    draw = np.random.default_rng(seed)
    tokens = np.clip(draw.lognormal(6.7, 0.8, (8, 16)), 1, 12_288).astype(int).tolist()
    groups = of_lengths(*tokens, prompt=260)
    costs = [sum(map(pack_cost, share)) for share in plan_shares(groups, 8192, world)]
    assert max(costs) <= sum(costs) / (0.9 * world)
    indices = [t.index for share in plan_shares(groups, 8192, world) for p in share for g in p for t in g.trajectories]
    assert sorted(indices) == list(range(128))

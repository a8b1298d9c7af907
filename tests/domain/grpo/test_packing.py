from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack, plan_packs


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


def test_a_token_of_unknown_behaviour_is_read_and_not_predicted() -> None:
    holed = Trajectory(3, [1, 2, 3], np.array([-1, np.nan, -3], np.float32), 0.5)
    pack = build_pack([PromptGroup([7], [holed])])
    assert pack.tokens_T.tolist() == [7, 1, 2]
    assert pack.rows_K.tolist() == [0, 2] and pack.targets_K.tolist() == [1, 3]
    assert pack.behaviour_K.tolist() == [-1, -3] and pack.rollout_K.tolist() == [3, 3]


def test_second_prompt_starts_over() -> None:
    pack = build_pack([PromptGroup([7], [trajectory(0, 1, 2)]), PromptGroup([8, 9], [trajectory(1, 3, 4)])])
    assert pack.positions_T.tolist() == [0, 1, 0, 1, 2]
    assert pack.key_rows.tolist() == [0, 0, 1, 2, 3, 2, 3, 4]


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

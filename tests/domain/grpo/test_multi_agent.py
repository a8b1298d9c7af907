"""Generator and critic: what each one's rollouts weigh, by hand and in general."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.grpo.advantages.group import Context, Group
from tasks.domain.grpo.advantages.registry import group_advantages

critiques = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=16)


def found(*of: tuple[bool, bool]) -> np.ndarray:
    """Of critiques: (refinement right, draft right)."""
    right = np.array([float(r) for r, _ in of])
    group = Group(right, right, "p", of_right_drafts=tuple(draft for _, draft in of))
    return group_advantages(group, "multi_agent", Context())[0]


def test_mended_and_kept_have_half_each_by_hand() -> None:
    """Three of four right, so 1/4 each and 3/4 in all: 3/8 for the one that was kept, 3/16 for each of two that were mended."""
    assert found((True, True), (True, False), (True, False), (False, True)) == pytest.approx([3 / 8, 3 / 16, 3 / 16, 0])


def test_where_all_were_mended_or_all_kept_each_weighs_the_same() -> None:
    assert found((True, False), (True, False), (False, False), (False, True)) == pytest.approx([0.5, 0.5, 0, 0])
    assert found((True, True), (False, True), (False, True), (False, False)) == pytest.approx([0.75, 0, 0, 0])


@given(critiques)
def test_halves_are_alike_and_together_what_right_ones_weigh(of: list[tuple[bool, bool]]) -> None:
    advantages, size = found(*of), len(of)
    num_right = sum(right for right, _ in of)
    assert advantages.sum() == pytest.approx(num_right * (1 - num_right / size))
    assert not advantages[[not right for right, _ in of]].any() and (advantages >= 0).all()
    kept, mended = (advantages[[r and d is draft for r, d in of]].sum() for draft in (True, False))
    if kept and mended:
        assert kept == pytest.approx(mended)

"""Groups in which an objective finds nothing: exactly zero, not the last digits of a sum."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.domain.grpo.advantages.group import Candidate, Context, Group, minus_mean
from tasks.domain.grpo.advantages.registry import ADVANTAGES, group_advantages
from tasks.domain.grpo.second_scaffold import answer_key
from tests.domain.grpo.test_advantages import formed, right

GROUP = formed(*((i < 2, False) for i in range(4)))
CONTRADICTING = [formed(*((i < c, i >= c) for i in range(4))) for c in (1, 2, 3)]


@pytest.mark.parametrize(("kind", "k"), [("pass_at_k", 3), ("pass_at_k", 4), ("pkpo", 4)])
def test_a_form_that_all_break_adds_nothing(kind: str, k: int) -> None:
    """0.8 - 1 is not -0.2. Any k of them hold a right one, so nothing is left to learn."""
    assert not group_advantages(right(1, 1, 0, 0), kind, Context(k=k))[0].any()
    assert not group_advantages(GROUP, kind, Context(k=k))[0].any()


@pytest.mark.parametrize("group", CONTRADICTING, ids=["1 right", "2 right", "3 right"])
def test_gdpo_is_nothing_where_form_says_the_opposite_of_correctness(group: Group) -> None:
    """Their scores cancel; the spread of what cancelled is no scale."""
    assert np.abs(group.rewards_G - group.rewards_G[0]).max() > 0
    assert not group_advantages(group, "gdpo", Context(step=(group,)))[0].any()
    beside = right(1, 1, 0, 0)
    assert not group_advantages(group, "gdpo", Context(step=(group, beside)))[0].any()


@pytest.mark.parametrize("kind", [name for name, one in ADVANTAGES.items() if one.of_parts and name != "gdpo"])
def test_what_is_of_correctness_hears_it_where_totals_are_alike(kind: str) -> None:
    """Two right ones so long that they cost 1, two wrong ones of no cost: the totals are alike, and correctness is not."""
    correct, several = np.array([1.0, 1.0, 0.0, 0.0]), tuple((Candidate(i < 2, 9, i),) for i in range(4))
    group = Group(np.zeros(4), correct, "p", ("correct", "correct", "3", "4"), (0, 1, 2, 3), several)
    form = minus_mean(group.form_G)
    advantages = group_advantages(group, kind, Context(k=2))[0] - form
    assert advantages[:2].min() > advantages[2:].max()
    assert not group_advantages(group, "centred", Context())[0].any()


def test_leaving_the_trace_empty_does_not_pay() -> None:
    """Four right, three one way and one that names none: it weighs least, where it once was the rare way."""
    solved = np.ones(4)
    found = group_advantages(Group(solved, solved, traces=(0, 0, 1, None)), "darling_trace", Context())[0]
    assert found.argmin() == 3 and found == pytest.approx(np.array([2 / 3, 2 / 3, 1, 0.1]) - (7 / 3 + 0.1) / 4)


def test_a_wrong_answer_that_says_correct_is_not_the_right_one() -> None:
    keys = [answer_key(text, correct=False) for text in ("correct", " correct", "  correct", "incorrect")]
    assert len({*keys, answer_key("7", correct=True)}) == 5

"""VPO and Multi-RLVR by hand, and what is read of a completion of several answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UserError
from tasks.domain.grpo.advantages.group import Candidate, Context, Group
from tasks.domain.grpo.advantages.registry import ADVANTAGES, group_advantages
from tasks.domain.grpo.advantages.structured import worths
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import CRITIC, second_scaffold, several, solutions
from tasks.domain.scaffolds import PANEL, THINKING

LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=1, lora_alpha=1)
candidate = st.builds(Candidate, st.booleans(), st.integers(1, 30), st.one_of(st.none(), st.integers(0, 3)))
completions = st.lists(st.lists(candidate, max_size=4), min_size=2, max_size=8)


def of(candidates: list[list[Candidate]]) -> Group:
    correct = np.array([float(any(c.correct for c in one)) for one in candidates])
    return Group(correct, correct, "p", candidates=candidates)


def found(candidates: list[list[Candidate]], kind: str) -> np.ndarray:
    return group_advantages(of(candidates), kind, Context())[0]


def test_what_candidates_are_worth_by_hand() -> None:
    """Right ones of 10, 5 and 10 characters, two one way and one another; the wrong one is worth nothing to any judge."""
    one = [Candidate(True, 10, 0), Candidate(False, 2, 3)]
    other = [Candidate(True, 5, 1), Candidate(True, 10, 0)]
    first, second = worths([one, other])
    assert first.tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
    assert second.tolist() == [[1.0, 0.5, 1.0], [1.0, 0.0, 0.5]]


def test_multi_rlvr_by_hand() -> None:
    right, wrong = Candidate(True, 3), Candidate(False, 3)
    three = [[right, right], [right, wrong], [wrong, wrong]]
    assert found(three, "multi_rlvr_sum") == pytest.approx(np.array([1, 0, -1]) * 1.5**0.5)
    assert found(three, "multi_rlvr_max") == pytest.approx(np.array([1, 1, -2]) / 2**0.5)


SEVERAL = sorted(name for name, one in ADVANTAGES.items() if "candidates" in one.needs)


@given(completions, st.sampled_from(SEVERAL), st.integers(2, 5))
def test_wrong_candidates_their_order_and_their_length_say_nothing(
    candidates: list[list[Candidate]], kind: str, scale: int
) -> None:
    """Nor does the unit that lengths are in."""
    before = found(candidates, kind)
    more = [[Candidate(False, 1, 9), *reversed(one)] for one in candidates]
    longer = [[replace(c, length=scale * c.length) for c in one] for one in candidates]
    assert np.allclose(found(more, kind), before) and np.allclose(found(longer, kind), before)
    assert abs(before.sum()) < 1e-9 and before.std() in (pytest.approx(0), pytest.approx(1))


def test_solutions_are_told_apart_and_counted_once() -> None:
    text = " ".join(PANEL.answer_in_form(answer, f"Ann: {answer}.") for answer in ("7", "8", "7", "9"))
    assert solutions(text, 3) == [PANEL.answer_in_form("7", "Ann: 7."), PANEL.answer_in_form("8", "Ann: 8.")]
    assert [PANEL.parse(one).region for one in solutions(text, 9)] == ["7", "8", "9"]
    assert not solutions("no answer", 3)


def test_each_has_a_scaffold_of_its_own_and_an_arm_without_tags_is_refused() -> None:
    asked = several(PANEL, 3)
    assert asked.digest != PANEL.digest and asked.stop != PANEL.stop and "3 times" in asked.prompt("1+1")
    assert second_scaffold(LEARNER, PANEL) is None
    assert second_scaffold(replace(LEARNER, advantage="vpo", candidates=4), PANEL) == several(PANEL, 4)
    assert second_scaffold(replace(LEARNER, advantage="refined"), THINKING) == replace(CRITIC, chat=True)
    with pytest.raises(UserError, match="thinking lacks") as raised:
        second_scaffold(replace(LEARNER, advantage="vpo"), THINKING)
    assert "\n" not in str(raised.value)

"""Objectives that look beyond rewards, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.domain.grpo.advantages.group import Context, Group
from tasks.domain.grpo.advantages.registry import group_advantages
from tasks.domain.grpo.second_scaffold import THRESHOLD
from tasks.domain.partitions.by_strategy import jaccard, profile
from tasks.domain.partitions.calibration import LabelledGroup, threshold_of
from tasks.engines.encoding import labelled_problems

HALF = np.array([1.0, 1.0, 0.0, 0.0])
SPREAD = 3**-0.5  # of HALF, n - 1
TASK = np.array([0.5, 0.5, -0.5, -0.5]) / SPREAD


def found(group: Group, kind: str, **context: object) -> list[float]:
    return group_advantages(group, kind, Context(**context))[0].tolist()  # type: ignore[arg-type]


def test_darling_by_trace_by_hand() -> None:
    """Of three others, the first right rollout has two in another class (2/3), the second all three: rewards 2/3, 1, 0, 0
    of mean 5/12."""
    group = Group(HALF, HALF, traces=(0, 1, 0, 2))
    assert found(group, "darling_trace") == pytest.approx([2 / 3 - 5 / 12, 1 - 5 / 12, -5 / 12, -5 / 12])


@pytest.mark.parametrize("form", [np.zeros(4), np.array([0.1, 0.0, 0.1, 0.0])])
def test_darling_asks_for_no_class_where_none_is_right(form: np.ndarray) -> None:
    """So the encoder is not asked either: what a wrong rollout's way is changes nothing."""
    seen, unseen = (Group(form, np.zeros(4), traces=ways) for ways in ((0, 1, 1, None), (None,) * 4))
    for name in ("darling_trace", "darling_encoded"):
        assert found(seen, name) == found(unseen, name) == pytest.approx(list(form - form.mean()))
        assert "diversity" not in group_advantages(unseen, name, Context())[1]


def test_darling_by_answer_by_hand() -> None:
    """One right of four: all three others answer otherwise, so 1, 0, 0, 0 centred; three right: 1/3 each, of mean 1/4."""
    rare, common = np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 1, 0])
    assert found(Group(rare, rare, answers=("correct", "3", "3", "4")), "darling_answer") == pytest.approx(
        [0.75, -0.25, -0.25, -0.25]
    )
    assert found(Group(common, common, answers=(*("correct",) * 3, "3")), "darling_answer") == pytest.approx(
        [1 / 12] * 3 + [-1 / 4]
    )


@pytest.mark.parametrize(
    ("kind", "gated", "exploring"),
    [
        # b = 1/√4, 1/√4, 1, 1/√9; each minus the mean of the other three
        ("ucb_mean", False, [-1 / 9, -1 / 9, 5 / 9, -1 / 3]),
        # wrong ones have none: 1/2, 1/2, 0, 0
        ("ucb_mean", True, [1 / 3, 1 / 3, -1 / 3, -1 / 3]),
        ("ucb_constant", False, [0.0, 0.0, 0.5, -1 / 6]),
        ("ucb_constant", True, [0.0, 0.0, 0.0, 0.0]),
        ("batch_exploration", False, [-0.25, -0.25, 0.0, 0.0]),
        ("batch_exploration", True, [-0.25, -0.25, 0.0, 0.0]),
    ],
)
def test_exploration_by_hand(kind: str, gated: bool, exploring: list[float]) -> None:
    """The right answer was given 4 times before, "3" never, "5" nine times."""
    group = Group(HALF, HALF, "p", ("correct", "correct", "3", "5"))
    before = {"p": {"correct": 4, "5": 9}, "another": {"3": 100}}
    assert found(group, kind, gated=gated, visits=before) == pytest.approx(TASK + 0.2 * np.array(exploring))


def test_no_answer_earns_no_bonus() -> None:
    wrong = np.zeros(2)
    group = Group(wrong, wrong, "p", (None, "3"))
    assert found(group, "ucb_mean", gated=False) == pytest.approx([-0.2, 0.2])
    assert found(Group(wrong, wrong, "p", (None, None)), "batch_exploration", gated=False) == [0.0, 0.0]


def test_reinforce_plus_plus_weighs_a_group_against_its_step() -> None:
    """Rewards of the step: 1 1 1 1 1 0 0 0, mean 5/8, spread √(15)/8: a solved group is above it, an unsolved one below."""
    solved, mixed = np.ones(4), np.array([1.0, 0.0, 0.0, 0.0])
    step = (Group(solved, solved), Group(mixed, mixed))
    assert found(step[0], "reinforce_plus_plus", step=step) == pytest.approx([3 / 15**0.5] * 4)
    assert found(step[1], "reinforce_plus_plus", step=step) == pytest.approx([3 / 15**0.5] + [-5 / 15**0.5] * 3)


def test_gdpo_hears_form_beside_correctness() -> None:
    """A right one without its tags and a wrong one with them are worth the same, whatever the tag reward is."""
    for cost in (0.2, 0.02):
        group = Group(np.array([1.0 - cost, 1.0, 0.0, -cost]), HALF)
        advantages = found(group, "gdpo")
        assert advantages[0] == pytest.approx(advantages[2], abs=1e-9)
        assert advantages[1] == pytest.approx(2**0.5) == pytest.approx(-advantages[3])


def test_the_threshold_is_the_one_that_labelled_traces_set() -> None:
    labelled = [
        LabelledGroup(jaccard([profile(trace) for trace in problem.traces]), problem.solutions)
        for problem in labelled_problems()
    ]
    assert round(threshold_of(labelled), 2) == THRESHOLD

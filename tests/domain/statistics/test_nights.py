"""Nightly drift: the scan's p-value against all permutations, its level by simulation, and what a night may leave out."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from benchmarks.nights import Cell, first_alarm
from tasks.domain.statistics.nights import look


def largest(correct_NP: np.ndarray, rollouts_NP: np.ndarray) -> float:
    """The scan as its definition has it, problem by problem."""
    found = []
    for night in range(1, len(correct_NP)):
        above, variance = 0.0, 0.0
        for problem in range(correct_NP.shape[1]):
            total, right = rollouts_NP[:, problem].sum(), correct_NP[:, problem].sum()
            late = rollouts_NP[night:, problem].sum()
            above += correct_NP[night:, problem].sum() - late * right / total
            variance += late * right * (total - right) * (total - late) / total**2 / (total - 1)
        found.append(abs(above) / variance**0.5)
    return max(found)


def test_p_is_that_of_all_permutations_within_problems() -> None:
    correct_NP, rollouts_NP = np.array([[2, 2, 1], [1, 0, 1], [0, 0, 0]]), np.array([[2, 2, 2], [1, 2, 1], [1, 0, 1]])
    ways = []
    for problem in range(3):
        drawn = np.repeat(np.arange(3), rollouts_NP[:, problem])
        ones = [1] * correct_NP[:, problem].sum()
        each = set(permutations(ones + [0] * (len(drawn) - len(ones))))
        ways.append([np.bincount(drawn, weights, minlength=3) for weights in each])
    observed = largest(correct_NP, rollouts_NP)
    all_of_them = [largest(np.stack(way, axis=1), rollouts_NP) for way in product(*ways)]
    exact = np.mean([one >= observed - 1e-9 for one in all_of_them])
    found = look(correct_NP, rollouts_NP, level=1.0, seed=0)
    assert abs(found.z) == pytest.approx(observed) and found.p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("cell", [Cell(25, 1), Cell(40, 2)], ids=lambda cell: cell.name)
def test_false_alarms_over_a_quarter(cell: Cell) -> None:
    """At most 5 %: of 40 quarters 7 or more would come in 3 cases of 1,000."""
    assert sum(first_alarm(cell, seed, 90) > 0 for seed in range(40)) < 7


def test_a_drop_of_six_points_is_found_within_three_nights() -> None:
    assert sum(first_alarm(Cell(100, 8, changed=1, drop=0.06), seed, 3) > 0 for seed in range(20)) >= 17


def test_a_canary_is_compared_with_the_same_problems_alone() -> None:
    """The first problem is easy: without the hard one tonight's share of .75 is a loss."""
    found = look(np.array([[8, 0], [6, 0]]), np.array([[8, 8], [8, 0]]), level=0.04, seed=0)
    assert (found.tonight, found.expected, found.change) == (0.75, 1.0, -0.25)
    assert found.low < 0.8 and found.high == 1.0 and not found.alarm


def test_an_old_change_counts_as_the_evaluation_after_the_window() -> None:
    rng = np.random.default_rng(0)
    correct_NP = np.vstack([rng.binomial(8, 0.8, (5, 50)), rng.binomial(8, 0.5, (33, 50))])
    found = look(correct_NP[:10], np.full((10, 50), 8), level=0.04, seed=0)
    assert look(correct_NP[:10], np.full((10, 50), 8), level=0.04, seed=0, changed=7).since >= 7
    assert found.alarm and found.since == 5 and found.change == pytest.approx(-0.3, abs=0.05)
    assert look(correct_NP, np.full(correct_NP.shape, 8), level=0.04, seed=0).since > len(correct_NP) - 31

"""Thresholds are set by labelled traces: by hand on three of them, and on the project's own."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.domain.partitions.by_strategy import jaccard, profile
from tasks.domain.partitions.calibration import Counts, LabelledGroup, counted, counts_at, left_out, threshold_of
from tasks.engines.encoding import labelled_problems
from tasks.partitions import calibrated

#: Traces 0 and 1 are one solution in two wordings.
GROUP = LabelledGroup(np.array([[1.0, 0.9, 0.6], [0.9, 1.0, 0.4], [0.6, 0.4, 1.0]]), "aab")


def test_the_threshold_lies_between_what_is_the_same_and_what_is_not() -> None:
    assert threshold_of([GROUP]) == pytest.approx(0.75)  # between 0.9 and 0.6
    assert counts_at([GROUP, GROUP], 0.75) == Counts(2, 0, 0, 4)


def test_too_strict_and_too_loose_by_hand() -> None:
    assert counted(GROUP, 0.95) == Counts(0, 0, 1, 2)
    assert counted(GROUP, 0.3) == Counts(1, 2, 0, 0)


def test_a_class_whose_ends_are_not_alike_is_not_made() -> None:
    """0.6 would join all three by a chain; the third is too far from the second."""
    assert counted(GROUP, 0.5) == Counts(1, 0, 0, 2)


def test_each_problem_is_judged_by_the_others() -> None:
    other = LabelledGroup(np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.1], [0.1, 0.1, 1.0]]), "aab")
    assert threshold_of([other]) == pytest.approx(0.3)
    assert left_out([GROUP, other]) == [Counts(1, 2, 0, 0), Counts(0, 0, 1, 2)]
    row = calibrated([GROUP, other])
    assert (row["joined"], row["joined_rightly"], row["same"], row["pairs"]) == (3, 1, 2, 6)
    assert (row["precision"], row["recall"]) == (pytest.approx(1 / 3), 0.5)
    assert 0 < row["recall_low"] < 0.5 < row["recall_high"] <= 1


def test_strategies_are_told_apart_without_an_encoder() -> None:
    """Held against problems that the threshold was not set on. At chance one pair in five would be right."""
    groups = [LabelledGroup(jaccard([profile(t) for t in p.traces]), p.solutions) for p in labelled_problems()]
    row = calibrated(groups)
    assert row["precision_low"] > 2 * row["same"] / row["pairs"]
    assert row["recall_low"] > 0.5

"""Classes of traces and the labelled pairs that set their thresholds."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.partitions import (
    Counts,
    LabelledGroup,
    alike,
    by_strategy,
    by_trace,
    counted,
    counts_at,
    joined,
    left_out,
    profile,
    threshold_of,
)
from tasks.partitions import calibrated

# Classes of one group: what every partition keeps to, whatever is compared.


angles = st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.2, 2.0, 3.0]), min_size=1, max_size=9)
thresholds = st.floats(-0.9, 0.999)
texts = st.lists(
    st.sampled_from(["x = 2", "x = 2 and y = 3", "By symmetry.", "By symmetry x = 2", "y = 3", "Well.", None]),
    min_size=1,
    max_size=8,
)


def vectors(turned: Sequence[float]) -> np.ndarray:
    return np.stack([np.cos(turned), np.sin(turned)], axis=1)


def as_sets(classes: Sequence[int | None], order: Sequence[int] | None = None) -> set[frozenset[int]]:
    at = range(len(classes)) if order is None else order
    return {frozenset(i for i, c in zip(at, classes, strict=True) if c == one) for one in set(classes) - {None}}


@given(angles, thresholds, st.randoms(use_true_random=False))
def test_traces_in_another_order_are_the_same_classes(turned: list[float], threshold: float, random: object) -> None:
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(len(turned))  # type: ignore[attr-defined]
    mixed = by_trace(vectors([turned[i] for i in order]), threshold)
    assert as_sets(mixed, order.tolist()) == as_sets(by_trace(vectors(turned), threshold))


@given(texts, st.floats(0.05, 1.0), st.randoms(use_true_random=False))
def test_strategies_in_another_order_are_the_same_classes(
    traces: list[str | None], threshold: float, random: object
) -> None:
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(len(traces))  # type: ignore[attr-defined]
    mixed = by_strategy([traces[i] for i in order], threshold)
    assert as_sets(mixed, order.tolist()) == as_sets(by_strategy(traces, threshold))


@given(angles, thresholds)
def test_any_two_of_a_class_are_alike(turned: list[float], threshold: float) -> None:
    near = vectors(turned) @ vectors(turned).T
    found = np.array(by_trace(vectors(turned), threshold))
    assert (near[found[:, None] == found[None, :]] >= threshold - 1e-9).all()
    assert len(set(found)) <= len(turned)


def test_a_chain_of_equal_answers_is_one_class_and_one_of_near_traces_is_not() -> None:
    chain = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.7], [0.1, 0.7, 1.0]])
    assert joined(chain >= 0.5) == [0, 0, 0]
    assert alike(chain, 0.5) == [0, 0, 1]


def test_equations_are_the_same_however_they_are_written() -> None:
    one = profile(r"We have $2 \cdot x + 3 = 11$, thus \(x = \frac{8}{2} = 4\).")
    other = profile("11 = 3+2x, so x = 8/2, and 8/2 = 4")
    assert one == other == {"11=2x+3", "8/2=x", "4=8/2"}
    assert profile("x > 3") == profile("3 < x")
    assert profile("By the Pythagorean theorem") == {"pythag"}


# Thresholds are set by labelled traces: by hand on three of them, and on the project's own.


#: Traces 0 and 1 are one solution in two wordings.
GROUP = LabelledGroup(np.array([[1.0, 0.9, 0.6], [0.9, 1.0, 0.4], [0.6, 0.4, 1.0]]), "aab")


def test_the_threshold_lies_between_what_is_the_same_and_what_is_not() -> None:
    assert threshold_of([GROUP]) == pytest.approx(0.75)  # between 0.9 and 0.6
    assert counts_at([GROUP, GROUP], 0.75) == Counts(2, 0, 0, 4)


def test_too_strict_and_too_loose_by_hand() -> None:
    assert counted(GROUP, 0.95) == Counts(0, 0, 1, 2)
    assert counted(GROUP, 0.3) == Counts(1, 2, 0, 0)


def test_each_problem_is_judged_by_the_others() -> None:
    other = LabelledGroup(np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.1], [0.1, 0.1, 1.0]]), "aab")
    assert threshold_of([other]) == pytest.approx(0.3)
    assert left_out([GROUP, other]) == [Counts(1, 2, 0, 0), Counts(0, 0, 1, 2)]
    row = calibrated([GROUP, other])
    assert (row["joined"], row["joined_rightly"], row["same"], row["pairs"]) == (3, 1, 2, 6)
    assert (row["precision"], row["recall"]) == (pytest.approx(1 / 3), 0.5)
    assert 0 < row["recall_low"] < 0.5 < row["recall_high"] <= 1

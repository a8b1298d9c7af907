"""pass@k against worked values, brute force, and what must hold for any group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.rules import pass_all_k, pass_at_k

counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


def test_pass_at_k_of_three_rollouts_by_hand() -> None:
    # n = 3, c = 1: k = 1 hits 1 of 3 singles, k = 2 misses only the one pair without it, k = 3 always hits
    assert pass_at_k(np.array([3]), np.array([1]), [1, 2, 3]).tolist() == [
        [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    ]


@given(counts)
@settings(deadline=None)
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(case: tuple[int, int, int]) -> None:
    n, c, k = case
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(np.array([n]), np.array([c]), [k])[0, 0] == pytest.approx(exact, abs=1e-12)
    assert pass_all_k(np.array([n]), np.array([c]), [k])[0, 0] == pytest.approx(math.comb(c, k) / math.comb(n, k))


def test_large_groups_do_not_overflow() -> None:
    assert pass_at_k(np.array([100_000]), np.array([1]), [1000])[0, 0] == pytest.approx(0.01)


def test_k_beyond_n_is_null_not_a_number() -> None:
    found = pass_at_k(np.array([2, 4]), np.array([2, 0]), [3])
    assert found.tolist() == [[None], [0.0]]
    with pytest.raises(ValueError, match="at least 1"):
        pass_at_k(np.array([2]), np.array([1]), [0])
    with pytest.raises(ValueError, match="fewer rollouts"):
        pass_at_k(np.array([2]), np.array([3]), [1])

"""Subsets that are drawn: each rollout as often, and what the order of rollouts moves."""

from __future__ import annotations

from math import comb

from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.statistics.estimators import subsets


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 300))
def test_each_is_a_subset_and_as_many_as_asked(n: int, k: int, most: int) -> None:
    chosen_SK = subsets(n, min(k, n), most)
    assert len(chosen_SK) == min(comb(n, min(k, n)), most)
    assert all(len(set(row)) == min(k, n) for row in chosen_SK.tolist())
    assert 0 <= chosen_SK.min() <= chosen_SK.max() < n

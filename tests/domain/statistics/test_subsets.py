"""Subsets that are drawn: each rollout as often, and what the order of rollouts moves."""

from __future__ import annotations

from math import comb

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.statistics.estimators import subsets, vendi_of_k


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 300))
def test_each_is_a_subset_and_as_many_as_asked(n: int, k: int, most: int) -> None:
    chosen_SK = subsets(n, min(k, n), most)
    assert len(chosen_SK) == min(comb(n, min(k, n)), most)
    assert all(len(set(row)) == min(k, n) for row in chosen_SK.tolist())
    assert 0 <= chosen_SK.min() <= chosen_SK.max() < n


def test_more_than_there_are_is_none() -> None:
    assert subsets(3, 5).shape == (0, 5)


def test_what_the_order_of_rollouts_moves_is_small() -> None:
    """Mean over 100 problems of the Vendi score of 8 of 16, in six orders: within a hundredth of an interval's width."""
    rng = np.random.default_rng(1)
    vectors_PND = rng.normal(size=(100, 16, 32)) + rng.normal(size=(100, 1, 32))
    vectors_PND /= np.linalg.norm(vectors_PND, axis=2, keepdims=True)
    told = np.array([[vendi_of_k(v[rng.permutation(16)], 8) for v in vectors_PND] for _ in range(6)], np.float64)
    assert 0.002 < told.std(axis=0, ddof=1).mean() < 0.01
    assert told.mean(axis=1).std(ddof=1) < 0.1 * told.mean(axis=0).std(ddof=1) / 10

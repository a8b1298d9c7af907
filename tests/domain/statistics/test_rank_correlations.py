"""Correlations of all pairs at once equal those of each pair alone."""

from __future__ import annotations

from dataclasses import astuple
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.statistics.regression import rank_correlations


@given(seed=st.integers(0, 10_000), problems=st.sampled_from([3, 10, 40, 130, 260]), clustered=st.booleans())
def test_each_pair_has_the_correlation_that_it_has_alone(seed: int, problems: int, clustered: bool) -> None:
    """Continuous, tied, constant and rising values; with more clusters than are left out one by one."""
    draw = np.random.default_rng(seed)
    several = [
        draw.normal(size=problems),
        draw.integers(0, 3, problems).astype(float),
        np.ones(problems),
        np.arange(problems, dtype=float),
    ]
    cluster_P = draw.integers(0, max(2, problems // 2), problems) if clustered else np.arange(problems)
    pairs = list(combinations(range(len(several)), 2))
    for (one, other), together in zip(pairs, rank_correlations(several, pairs, cluster_P), strict=True):
        [alone] = rank_correlations([several[one], several[other]], [(0, 1)], cluster_P)
        assert repr(astuple(together)) == repr(astuple(alone))

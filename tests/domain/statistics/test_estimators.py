"""Estimators against worked values, brute force, and what must hold for any input."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.statistics import estimators as e


def unit_vectors(n: int, seed: int) -> np.ndarray:
    v = np.random.default_rng(seed).normal(size=(n, 5))
    return (v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(2, 12), st.integers(0, 99))
@settings(deadline=None)
def test_distance_and_spread_against_the_pairs_themselves(n: int, seed: int) -> None:
    v = unit_vectors(n, seed)
    by_pairs = np.mean([1 - float(v[i].astype(float) @ v[j].astype(float)) for i, j in combinations(range(n), 2)])
    found = e.mean_pairwise_distance(v)
    assert found is not None
    assert found == pytest.approx(by_pairs, abs=1e-6)
    # for unit vectors the published "emb_variance_trace" is (n-1)/n of the distance: over n - 1 it is the distance
    assert e.spread(v) == pytest.approx(found, abs=1e-6)


@given(st.integers(2, 10), st.integers(0, 50))
@settings(deadline=None)
def test_clusters_are_those_of_dbscan(n: int, seed: int) -> None:
    from sklearn.cluster import DBSCAN

    v = unit_vectors(n, seed)
    labels = DBSCAN(eps=0.25, min_samples=2, metric="precomputed").fit_predict(np.clip(1 - v.astype(float) @ v.T, 0, 2))
    expected = len(set(labels) - {-1}) + int((labels == -1).sum())
    assert e.num_clusters(v) == expected


def test_what_is_measured_of_a_group_does_not_depend_on_its_size() -> None:
    """Means over many groups of 6 and of 24 from one population."""
    rng = np.random.default_rng(0)
    found: dict[int, list[float]] = {}
    for n in (6, 24):
        vectors = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.normal(1.0, 1.0, size=(300, n, 5))]
        found[n] = [
            float(np.mean([e.length_cv(x) for x in rng.gamma(4.0, size=(3000, n))])),  # type: ignore[arg-type]
            float(np.mean([e.vendi_of_k(v, 4) for v in vectors])),  # type: ignore[arg-type]
            float(np.mean([e.spread(v) for v in vectors])),  # type: ignore[arg-type]
        ]
    assert found[6] == pytest.approx(found[24], rel=0.05)

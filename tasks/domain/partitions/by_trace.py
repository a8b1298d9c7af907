"""By trace: rollouts whose traces an encoder sets as near as it sets a trace and its rewording.

The threshold is calibrated, encoder by encoder, on a labelled set (`labelled`), never typed in.
"""

from __future__ import annotations

import numpy as np

from tasks.domain.partitions.classes import alike, in_order


def similarities(vectors_ND: np.ndarray) -> np.ndarray:
    """Cosine similarity_NN of unit vectors."""
    wide_ND = np.asarray(vectors_ND, np.float64)
    return wide_ND @ wide_ND.T


def by_trace(vectors_ND: np.ndarray, threshold: float) -> list[int]:
    """Classes of traces by their unit vectors, one row a trace.

    >>> by_trace(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 0.7)
    [0, 1, 0]
    """
    order_N = np.lexsort(np.asarray(vectors_ND).T)
    found_N = np.empty(len(order_N), np.int64)
    found_N[order_N] = alike(similarities(np.asarray(vectors_ND)[order_N]), threshold)
    return in_order(found_N)

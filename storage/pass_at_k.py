"""pass@k and pass^k of groups of rollouts, for statistics and for questions in SQL. Axes: P problems, K values of k
(all letters: docs/architecture.md).

Undefined is null for the caller: a masked entry (`numpy.ma`), never a made-up 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def pass_at_k(n_P: np.ndarray, c_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """(P, K) unbiased pass@k, 1 − C(n−c, k)/C(n, k), as a running product so that nothing overflows.
    Masked where n < k. Source: Chen et al. 2021 (arXiv 2107.03374).

    >>> pass_at_k(np.array([4, 4]), np.array([1, 0]), [1, 2, 5]).tolist()
    [[0.25, 0.5, None], [0.0, 0.0, None]]
    """
    n_P, c_P = _counts(n_P, c_P)
    miss_PK = _all_from(n_P, n_P - c_P, ks_K)
    return np.ma.MaskedArray(1.0 - miss_PK.data, mask=miss_PK.mask)


def pass_all_k(n_P: np.ndarray, c_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """(P, K) unbiased pass^k, the chance that k rollouts are all correct: C(c, k)/C(n, k). Masked where n < k.

    >>> pass_all_k(np.array([4]), np.array([3]), [1, 2]).tolist()
    [[0.75, 0.5]]
    """
    n_P, c_P = _counts(n_P, c_P)
    return _all_from(n_P, c_P, ks_K)


def _all_from(n_P: np.ndarray, m_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """(P, K) chance that k draws without replacement out of n all fall among m of them: C(m, k)/C(n, k)."""
    if any(k < 1 for k in ks_K):
        raise ValueError(f"k counts draws, so it is at least 1: {list(ks_K)}")
    chance_P, out_PK = np.ones(len(n_P)), np.zeros((len(n_P), len(ks_K)))
    wanted = {k: [i for i, other in enumerate(ks_K) if other == k] for k in ks_K}
    for i in range(min(max(ks_K, default=0), max(n_P, default=0))):  # beyond the largest group all is masked
        left_P = np.maximum(m_P - i, 0)
        chance_P = chance_P * left_P / np.maximum(n_P - i, 1)
        for column in wanted.get(i + 1, ()):
            out_PK[:, column] = chance_P
    return np.ma.MaskedArray(out_PK, mask=n_P[:, None] < np.asarray(ks_K)[None, :])


def _counts(n_P: np.ndarray, c_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n_P, c_P = np.asarray(n_P, np.int64), np.asarray(c_P, np.int64)
    if np.any(c_P < 0) or np.any(c_P > n_P):
        raise ValueError("a group has fewer rollouts than correct ones")
    return n_P, c_P


def pass_at_k_in_sql(n: pa.ChunkedArray, c: pa.ChunkedArray, k: pa.ChunkedArray) -> pa.Array:
    """pass@k of each group at its own k; null where n < k or one of the three is null.

    >>> pass_at_k_in_sql(*(pa.chunked_array([x]) for x in ([4, 4, 1, None], [1, 1, 1, 1], [1, 2, 2, 1]))).to_pylist()
    [0.25, 0.5, None, None]
    """
    n_P, c_P, k_P = (np.asarray(column.to_numpy(), np.float64) for column in (n, c, k))  # null: nan
    known_P, found_P = ~np.isnan(n_P + c_P + k_P), np.ma.masked_all(len(n_P))
    for each in np.unique(k_P[known_P]):
        at_P = known_P & (k_P == each)
        found_P[at_P] = pass_at_k(n_P[at_P], c_P[at_P], [int(each)])[:, 0]
    return pa.array(found_P.filled(0.0), mask=np.ma.getmaskarray(found_P))

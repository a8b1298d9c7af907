"""Estimates that SQL and Python share: bands, pass@k, the bootstrap over problems, the interval of a difference.

Axes: P problems, V columns, K values of k, C classes (docs/architecture.md). An undefined value is masked in Python and
null in SQL, never 0 or 1.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa


class Band(StrEnum):
    """The bands, in display order. Only the column `correct` decides. So a group of wrong rollouts with mixed tags is
    `all_zero`, although its advantages are not zero."""

    ALL_ZERO = "all_zero"
    VARIANCE = "variance"
    ALL_ONE = "all_one"


def band(num_correct: int, group_size: int) -> Band:
    """Return the band of a group. Raise ValueError if the counts are impossible.

    >>> [str(band(c, 8)) for c in (0, 3, 8)]
    ['all_zero', 'variance', 'all_one']
    """
    if not 0 <= num_correct <= group_size:
        raise ValueError(f"no group has {num_correct} of {group_size} rollouts correct")
    return Band.ALL_ZERO if num_correct == 0 else Band.ALL_ONE if num_correct == group_size else Band.VARIANCE


def in_variance_band(num_correct: int, group_size: int) -> bool:
    """Return whether a group has correct and wrong rollouts. Further rollouts cannot change that.

    >>> in_variance_band(1, 2), in_variance_band(0, 0)
    (True, False)
    """
    return band(num_correct, group_size) is Band.VARIANCE


def variance_chance(chance: np.ndarray, group_size: int) -> np.ndarray:
    """Return the probability that a group has correct and wrong rollouts, given the success rate.

    >>> variance_chance(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [0.0, 0.5, 0.0]
    """
    return 1 - chance**group_size - (1 - chance) ** group_size


def pass_at_k(n_P: np.ndarray, c_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """Return (P, K) unbiased pass@k, 1 − C(n−c, k)/C(n, k); masked where n < k. Chen et al. 2021 (arXiv 2107.03374).

    >>> pass_at_k(np.array([4, 4]), np.array([1, 0]), [1, 2, 5]).tolist()
    [[0.25, 0.5, None], [0.0, 0.0, None]]
    """
    n_P, c_P = _counts(n_P, c_P)
    miss_PK = _all_from(n_P, n_P - c_P, ks_K)
    return np.ma.MaskedArray(1.0 - miss_PK.data, mask=miss_PK.mask)


def pass_all_k(n_P: np.ndarray, c_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """Return (P, K) unbiased pass^k, the chance that k rollouts are all correct: C(c, k)/C(n, k); masked where n < k.

    >>> pass_all_k(np.array([4]), np.array([3]), [1, 2]).tolist()
    [[0.75, 0.5]]
    """
    n_P, c_P = _counts(n_P, c_P)
    return _all_from(n_P, c_P, ks_K)


def _all_from(n_P: np.ndarray, m_P: np.ndarray, ks_K: Sequence[int]) -> np.ma.MaskedArray:
    """Return (P, K) chances that all k draws without replacement out of n are among m of them: C(m, k)/C(n, k)."""
    if any(k < 1 for k in ks_K):
        raise ValueError(f"k counts draws, so it is at least 1: {list(ks_K)}")
    chance_P, out_PK = np.ones(len(n_P)), np.zeros((len(n_P), len(ks_K)))
    wanted = {k: [i for i, other in enumerate(ks_K) if other == k] for k in ks_K}
    for i in range(min(max(ks_K, default=0), max(n_P, default=0))):  # a larger k is masked in all groups
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
    """Return pass@k of each group at its own k; null if n < k, or if one of the three values is null.

    >>> pass_at_k_in_sql(*(pa.chunked_array([x]) for x in ([4, 4, 1, None], [1, 1, 1, 1], [1, 2, 2, 1]))).to_pylist()
    [0.25, 0.5, None, None]
    """
    n_P, c_P, k_P = (np.asarray(column.to_numpy(), np.float64) for column in (n, c, k))  # null: nan
    known_P, found_P = ~np.isnan(n_P + c_P + k_P), np.ma.masked_all(len(n_P))
    for each in np.unique(k_P[known_P]):
        at_P = known_P & (k_P == each)
        found_P[at_P] = pass_at_k(n_P[at_P], c_P[at_P], [int(each)])[:, 0]
    return pa.array(found_P.filled(0.0), mask=np.ma.getmaskarray(found_P))


#: Level of all printed intervals.
LEVEL = 0.95
CHUNK = 1 << 22  # indices that are drawn at once; it limits the memory of a bootstrap


def resample_means(values_PV: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Return (draws, V) means over problems that are drawn with replacement. All columns share the same draws."""
    rng, size = np.random.default_rng(seed), len(values_PV)
    columns = [np.ascontiguousarray(values_PV[:, v], np.float64) for v in range(values_PV.shape[1])]
    chunk = max(1, CHUNK // max(size, 1))
    out = np.empty((draws, len(columns)))
    for start in range(0, draws, chunk):
        rows = min(chunk, draws - start)
        index = rng.integers(0, size, size=(rows, size), dtype=np.int32)
        for v, column in enumerate(columns):
            out[start : start + rows, v] = column.take(index).mean(axis=1)
    return out


def resample_classes(counts_C: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Return (draws, C) bootstrap weights of problems in C classes; rows sum to 1. Problems of one class are alike, so
    the counts of a bootstrap over classes are multinomial. The distribution is that of a bootstrap over problems, but
    the cost does not grow with the number of problems."""
    counts_C = np.asarray(counts_C, np.int64)
    total = int(counts_C.sum())
    return np.random.default_rng(seed).multinomial(total, counts_C / total, size=draws) / total


def percentile_ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


#: Number of problems that is added at each end of the range, because n equal problems do not prove a variance of 0.
PSEUDO = 0.5
SEEN = 2.5  # exponent with which that variance decreases as more problems differ
FEW = 17.0  # divided by n: correction of the kurtosis of few problems near the ends of the range
NOTHING = 1e-24  # a smaller variance is rounding error of equal values


def tail_freedom(values_PV: np.ndarray, within: bool = False) -> np.ndarray:
    """Return the degrees of freedom_V of the variance over problems, 2n/(kurtosis − 1), at most n − 1.

    within: the values have a bounded range. Few problems near the ends of a range underestimate the kurtosis, so FEW/n
    is added.

    >>> tail_freedom(np.array([[1.0, 0.0], [-1, 0], [1, 0], [-1, 5]])).round(3).tolist()
    [3.0, 3.0]
    """
    n, kurtosis_V = len(values_PV), _kurtosis(values_PV)
    heavy_V = np.where(np.isfinite(kurtosis_V), kurtosis_V - 1 + within * FEW / n, 0.0)
    return np.clip(np.where(heavy_V > 0, 2 * n / np.where(heavy_V > 0, heavy_V, 1.0), n), 1.0, max(n - 1.0, 1.0))


def _kurtosis(values_PV: np.ndarray) -> np.ndarray:
    """Return the kurtosis_V; infinite if all values are equal."""
    away_PV = values_PV - values_PV.mean(axis=0)
    second_V, fourth_V = (away_PV**2).mean(axis=0), (away_PV**4).mean(axis=0)
    return np.where(second_V > NOTHING, fourth_V / np.where(second_V > NOTHING, second_V, 1.0) ** 2, np.inf)


def unseen_variance(values_PV: np.ndarray, reach: float) -> np.ndarray:
    """Return the variance_V of the mean that values not seen yet, within ±reach, may add.

    If all problems are equal, it is the variance of half a problem at each end (after Agresti and Min 2005). If m =
    n/kurtosis problems differ, it is divided by (1 + m)^2.5. The exponent was chosen by simulation (docs/coverage.md).

    >>> unseen_variance(np.array([[0.0, 1.0], [0, -1], [0, 1], [0, -1]]), 1.0).round(4)
    array([0.0333, 0.0006])
    """
    n = len(values_PV)
    return reach**2 * 2 * PSEUDO / ((n + 1) * (n + 2)) / (1 + n / _kurtosis(values_PV)) ** SEEN


def interval_over_problems(values_P: Sequence[float]) -> list[float] | None:
    """Return [low, high], the 95 % interval of a mean of differences of shares; None for one problem. In SQL write
    `interval_over_problems(list(x order by problem_id))`.

    >>> [round(end, 3) for end in interval_over_problems([0.5, 0.0, 0.25, 0.0]) or []]
    [-0.485, 0.86]
    >>> [round(end, 3) for end in interval_over_problems([0.0] * 20) or []], interval_over_problems([0.5])
    ([-0.097, 0.097], None)
    """
    from scipy.special import stdtrit

    difference_P1 = np.asarray(values_P, np.float64)[:, None]
    n = len(difference_P1)
    if n < 2:
        return None
    at, variance = float(difference_P1.mean()), float(difference_P1.var(ddof=1)) / n
    freedom = float(tail_freedom(difference_P1, within=True)[0]) if variance > NOTHING else n - 1.0
    variance += float(unseen_variance(difference_P1, 1.0)[0])
    half = float(-stdtrit(freedom, (1 - LEVEL) / 2) * np.sqrt(variance))
    return [max(at - half, -1.0), min(at + half, 1.0)]

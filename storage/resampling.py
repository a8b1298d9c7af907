"""The bootstrap over problems: one generator, one order, one rule of ends."""

from __future__ import annotations

import numpy as np

#: Of every interval that is printed.
LEVEL = 0.95
CHUNK = 1 << 22  # indices drawn at a time: bounds the memory of a bootstrap


def resample_means(values_PV: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(draws, V) means over problems drawn with replacement; the columns are drawn together."""
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
    """(draws, C) bootstrap weights of problems that fall into C classes, rows summing to 1.

    Problems of one class are exchangeable, so drawing problems with replacement is drawing class counts from a
    multinomial: the same distribution as the plain bootstrap, at a cost that does not grow with the problems.
    """
    counts_C = np.asarray(counts_C, np.int64)
    total = int(counts_C.sum())
    return np.random.default_rng(seed).multinomial(total, counts_C / total, size=draws) / total


def percentile_ends(drawn: np.ndarray) -> tuple[float, float]:
    """The percentile interval of bootstrap draws."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)

"""Rows by adapter and problem laid out as (S, P, V): the shape in which seeds and problems can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Seeded:
    """values_SPV of the problems problem_P that each of adapter_S has; trained: whether these are trainings."""

    values_SPV: np.ndarray
    problem_P: np.ndarray
    trained: bool
    adapter_S: np.ndarray


def same_adapters(policies: Sequence[np.ndarray]) -> bool:
    """Whether the policies with several seeds are the same adapters, for example under two prompts. policies: adapter_S
    of each.

    >>> same_adapters([np.array([4, 7]), np.array([4, 7]), np.array([0])]), same_adapters([np.array([4, 7])])
    (True, False)
    """
    first, *others = [adapter_S for adapter_S in policies if len(adapter_S) > 1] or [np.zeros(0)]
    return bool(others) and all(np.array_equal(first, other) for other in others)


def by_seed(problem_N: np.ndarray, adapter_N: np.ndarray, values_NV: np.ndarray) -> Seeded:
    """Rows of one adapter and problem are averaged. adapter 0 is none: several samplings of an untrained policy are one
    policy, not several seeds. Problems that some adapter lacks are left out.

    >>> one = by_seed(np.array([7, 7, 8, 7]), np.array([1, 2, 1, 2]), np.array([[1.0], [2.0], [5.0], [4.0]]))
    >>> one.values_SPV.tolist(), one.problem_P.tolist(), one.trained
    ([[[1.0]], [[3.0]]], [7], True)
    """
    problem_P, at_N = np.unique(problem_N, return_inverse=True)
    adapter_S, seed_N = np.unique(adapter_N, return_inverse=True)
    shape = (len(adapter_S), len(problem_P))
    cell_N, cells = seed_N * shape[1] + at_N, shape[0] * shape[1]
    times_C = np.bincount(cell_N, minlength=cells)
    sums_VC = [np.bincount(cell_N, weights=column, minlength=cells) for column in values_NV.T]
    means_CV = np.stack(sums_VC, axis=1) / np.maximum(times_C, 1)[:, None]
    kept_P = (times_C.reshape(shape) > 0).all(axis=0) if cells else np.zeros(0, bool)
    values_SPV = means_CV.reshape(*shape, values_NV.shape[1])[:, kept_P]
    return Seeded(values_SPV, problem_P[kept_P], bool((adapter_S != 0).any()), adapter_S)

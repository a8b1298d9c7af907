"""Classes of one problem's rollouts: what a chain of equal pairs joins. Axis suffix: N rollouts.

A class is a number from 0 on, in the order in which classes are first met; null where a rollout is in none.
"""

from __future__ import annotations

import numpy as np

Classes = list[int | None]


def joined(alike_NN: np.ndarray) -> list[int]:
    """Connected components of a symmetric relation: the order of rollouts changes the numbers of classes alone.

    >>> joined(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool))
    [0, 1, 0]
    """
    n = len(alike_NN)
    label_N = np.arange(n)
    reach_NN = np.asarray(alike_NN, bool) | np.eye(n, dtype=bool)
    while n:
        least_N = np.where(reach_NN, label_N, n).min(axis=1)
        if (least_N == label_N).all():
            break
        label_N = least_N
    return np.unique(label_N, return_inverse=True)[1].tolist() if n else []


def sizes(classes: Classes) -> list[int]:
    """Rollouts of each class; those in none are left out.

    >>> sizes([0, 1, None, 0])
    [2, 1]
    """
    counts: dict[int, int] = {}
    for one in classes:
        if one is not None:
            counts[one] = counts.get(one, 0) + 1
    return list(counts.values())

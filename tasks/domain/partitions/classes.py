"""Classes of one problem's rollouts. Axis suffix: N rollouts.

A class is a number from 0 on, in the order in which classes are first met; null where a rollout is in none. Equality is
passed on: a chain of equal answers is one class. Likeness is not: any two traces of one class are alike, for chains of
near traces would join what nobody calls the same (docs/analysis.md).
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
    return in_order(label_N)


def alike(similarity_NN: np.ndarray, threshold: float) -> list[int]:
    """Classes within which every similarity is the threshold or more: complete linkage, the nearest two first.

    Where two pairs are equally near, the first in order is joined first: callers put what they compare in an order of
    its own, so that the order of rollouts decides nothing.

    >>> alike(np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.8], [0.1, 0.8, 1.0]]), 0.7)  # a chain, but its ends are not alike
    [0, 0, 1]
    """
    if len(similarity_NN) < 2:
        return [0] * len(similarity_NN)
    return cut(merges(similarity_NN), max(1.0 - threshold, 0.0))


def merges(similarity_NN: np.ndarray) -> np.ndarray:
    """The tree of `alike`: a row a merge, the nearest first, its distance in column 2. N is two at least."""
    from scipy.cluster.hierarchy import linkage

    distance = 1.0 - similarity_NN[np.triu_indices(len(similarity_NN), 1)]
    return linkage(np.maximum(distance, 0.0), method="complete")


def cut(tree: np.ndarray, distance: float) -> list[int]:
    """Classes by those merges that are no further."""
    from scipy.cluster.hierarchy import fcluster

    return in_order(fcluster(tree, distance, criterion="distance"))


def in_order(label_N: np.ndarray) -> list[int]:
    """
    >>> in_order(np.array([7, 3, 7]))
    [0, 1, 0]
    """
    places: dict[int, int] = {}
    return [places.setdefault(int(label), len(places)) for label in label_N]


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

"""Calibration: the similarity threshold above which two traces count as the same, and its precision and recall.

A labelled group holds one problem's traces, each with a known solution. A threshold is scored by its partition:
precision is the share of pairs in one class that have one solution, recall the share of pairs with one solution that
are in one class. Axis suffix: N traces of a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from storage.errors import UserError
from tasks.domain.partitions.classes import cut, merges


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGroup:
    """similarity_NN of one problem's traces; solution_N: label of the solution of each. Compared by identity, for
    caching."""

    similarity_NN: np.ndarray
    solution_N: Sequence[str]


class Counts(NamedTuple):
    """Numbers of pairs of labelled traces: joined by the partition or not, correctly (true) or not (false)."""

    true_joined: int = 0
    false_joined: int = 0
    false_apart: int = 0
    true_apart: int = 0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if nothing is joined.

        >>> Counts(3, 1, 2, 9).f1
        0.6666666666666666
        """
        return 2 * self.true_joined / max(2 * self.true_joined + self.false_joined + self.false_apart, 1)


def counted(group: LabelledGroup, threshold: float) -> Counts:
    """Count the pairs of one group under the partition of this threshold.

    >>> counted(LabelledGroup(np.array([[1, 0.9, 0.2], [0.9, 1, 0.1], [0.2, 0.1, 1]]), "aab"), 0.5)
    Counts(true_joined=1, false_joined=0, false_apart=0, true_apart=2)
    """
    if len(group.solution_N) < 2:
        return Counts()
    near = _tree(group)[:, 2] <= max(1.0 - threshold, 0.0)
    return _counted(group, int(near.sum()))


@lru_cache
def _tree(group: LabelledGroup) -> np.ndarray:
    return merges(group.similarity_NN)


@lru_cache(1 << 14)  # few thresholds change a group's classes, and leave-one-out repeats them
def _counted(group: LabelledGroup, merged: int) -> Counts:
    """Count the pairs after the first `merged` merges of the tree."""
    tree = _tree(group)
    at_N = np.array(cut(tree, tree[merged - 1, 2] if merged else -1.0))
    solution_N = np.array(list(group.solution_N))
    one, other = np.triu_indices(len(at_N), 1)
    apart, different = at_N[one] != at_N[other], solution_N[one] != solution_N[other]
    return Counts(*np.bincount(2 * apart + different, minlength=4).tolist())


def summed(counts: Sequence[Counts]) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True)))


def counts_at(groups: Sequence[LabelledGroup], threshold: float) -> Counts:
    return summed([counted(group, threshold) for group in groups])


def threshold_of(groups: Sequence[LabelledGroup]) -> float:
    """Return the threshold with the highest F1, midway between two observed similarities; of several the strictest.
    Errors: UserError if no pair of the groups is the same, or none is different."""
    pairs = counts_at(groups, -np.inf)
    if not pairs.true_joined or not pairs.false_joined:
        raise UserError("labelled traces: calibration needs pairs of equal and of different traces")
    seen = np.unique(np.concatenate([g.similarity_NN[np.triu_indices(len(g.similarity_NN), 1)] for g in groups]))
    between = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    return float(max(between, key=lambda t: (counts_at(groups, t).f1, t)))


def left_out(groups: Sequence[LabelledGroup]) -> list[Counts]:
    """Count each problem's pairs with the threshold calibrated on the other problems (leave-one-out)."""
    return [counted(group, threshold_of([*groups[:i], *groups[i + 1 :]])) for i, group in enumerate(groups)]

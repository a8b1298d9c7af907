"""Calibration: the similarity from which on two traces are called the same, and how often that is right.

Labelled groups hold one problem's traces, each of a known solution. A threshold is judged by the partition that it
makes: precision is the share of pairs of one class that are of one solution, recall the share of pairs of one solution
that are in one class. Axis suffix: N traces of a problem.
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
    """similarity_NN of one problem's traces; solution_N: which of them are the same one in other words. Itself alone is
    equal to it, so that what was counted of it is remembered."""

    similarity_NN: np.ndarray
    solution_N: Sequence[str]


class Counts(NamedTuple):
    """Pairs of the labelled traces: joined and the same, joined and not, apart and the same, apart and not."""

    true_joined: int = 0
    false_joined: int = 0
    false_apart: int = 0
    true_apart: int = 0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where nothing is joined.

        >>> Counts(3, 1, 2, 9).f1
        0.6666666666666666
        """
        return 2 * self.true_joined / max(2 * self.true_joined + self.false_joined + self.false_apart, 1)


def counted(group: LabelledGroup, threshold: float) -> Counts:
    """Pairs of one group, as this threshold partitions it.

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


@lru_cache(1 << 14)  # a threshold moves a group's classes at few places, and each problem is left out in turn
def _counted(group: LabelledGroup, merged: int) -> Counts:
    """merged: how many merges of its tree are near enough."""
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
    """The threshold of the highest F1, in the middle between two similarities that were seen; of several the strictest.

    Errors: UserError where no pair of the groups is the same or none is different: nothing can be told apart then.
    """
    pairs = counts_at(groups, -np.inf)
    if not pairs.true_joined or not pairs.false_joined:
        raise UserError("a threshold is calibrated on traces that are the same and on some that are not")
    seen = np.unique(np.concatenate([g.similarity_NN[np.triu_indices(len(g.similarity_NN), 1)] for g in groups]))
    between = (seen[1:] + seen[:-1]) / 2 if len(seen) > 1 else seen
    return float(max(between, key=lambda t: (counts_at(groups, t).f1, t)))


def left_out(groups: Sequence[LabelledGroup]) -> list[Counts]:
    """Pairs of each problem by the threshold that the other problems alone would set: what a new problem may expect."""
    return [counted(group, threshold_of([*groups[:i], *groups[i + 1 :]])) for i, group in enumerate(groups)]

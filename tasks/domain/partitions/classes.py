"""Group the rollouts of one problem into classes of equal answers or of similar traces. Axis suffix: N rollouts.

A class is a number from 0, in order of first occurrence; None for a rollout in no class. Equality is transitive: a
chain of equal answers is one class. Similarity is not transitive: a chain of similar traces could join two different
ones. Any two traces of a class must therefore be similar (docs/analysis.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from storage.errors import UserError
from tasks.domain.grading.comparison import same_terms
from tasks.domain.grading.formulas import number
from tasks.domain.grading.values import start_work

Classes = list[int | None]


def joined(alike_NN: np.ndarray) -> list[int]:
    """Return the connected components of a symmetric relation. The order of rollouts affects only the numbering of
    classes.

    >>> joined(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool))
    [0, 1, 0]
    """
    from scipy.sparse.csgraph import connected_components

    return in_order(connected_components(alike_NN, directed=False)[1]) if len(alike_NN) else []


def alike(similarity_NN: np.ndarray, threshold: float) -> list[int]:
    """Return classes in which every pairwise similarity is at least the threshold (complete linkage, most similar pair
    first).

    Ties are joined in input order; callers sort their input, so that the order of rollouts has no effect.

    >>> alike(np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.8], [0.1, 0.8, 1.0]]), 0.7)  # a chain, but its ends are not alike
    [0, 0, 1]
    """
    if len(similarity_NN) < 2:
        return [0] * len(similarity_NN)
    return cut(merges(similarity_NN), max(1.0 - threshold, 0.0))


def merges(similarity_NN: np.ndarray) -> np.ndarray:
    """Return the cluster tree: one merge per row, the nearest first, with its distance in column 2. N ≥ 2."""
    from scipy.cluster.hierarchy import linkage

    distance = 1.0 - similarity_NN[np.triu_indices(len(similarity_NN), 1)]
    return linkage(np.maximum(distance, 0.0), method="complete")


def cut(tree: np.ndarray, distance: float) -> list[int]:
    """Return the classes of a hierarchical clustering after all merges up to this distance."""
    from scipy.cluster.hierarchy import fcluster

    return in_order(fcluster(tree, distance, criterion="distance"))


def in_order(label_N: np.ndarray) -> list[int]:
    """Renumber labels by first occurrence.

    >>> in_order(np.array([7, 3, 7]))
    [0, 1, 0]
    """
    places: dict[int, int] = {}
    return [places.setdefault(int(label), len(places)) for label in label_N]


# Partition by trace: traces are similar if their distance is like that of a trace and its rewording. The threshold is
# calibrated for each encoder on a labelled set (`labelled`).


def similarities(vectors_ND: np.ndarray) -> np.ndarray:
    """Return the cosine similarities of unit vectors (similarity_NN)."""
    wide_ND = np.asarray(vectors_ND, np.float64)
    return wide_ND @ wide_ND.T


def by_trace(vectors_ND: np.ndarray, threshold: float) -> list[int]:
    """Return classes of traces from their unit vectors, one row per trace.

    >>> by_trace(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 0.7)
    [0, 1, 0]
    """
    order_N = np.lexsort(np.asarray(vectors_ND).T)
    found_N = np.empty(len(order_N), np.int64)
    found_N[order_N] = alike(similarities(np.asarray(vectors_ND)[order_N]), threshold)
    return in_order(found_N)


# Partition by answer: rollouts whose answers the grader accepts as equal.

Pair = tuple[str, str]
#: Pairs of answers → whether each pair is equal.
Equal = Callable[[Sequence[Pair]], Sequence[bool]]
#: Integers in this form are equal if and only if their texts are.
INTEGER = re.compile(r"-?[1-9]\d{0,17}|0")


def same_answers(texts: Mapping[str, Sequence[str]], equal: Equal, by_value: bool = True) -> list[tuple[str, str, str]]:
    """Return (problem, answer, the first answer that it equals) for each answer that equals an earlier one of its
    problem.

    by_value: answers are mathematics. Numbers are then compared here, without `equal`.

    >>> same_answers({"p": ["0.5", "1/2", "7"], "q": ["even", "is even"]}, lambda pairs: [True] * len(pairs))
    [('p', '1/2', '0.5'), ('q', 'is even', 'even')]
    """
    joined: dict[str, list[Pair]] = {}
    undecided: dict[str, list[Pair]] = {}
    for problem, several in texts.items():
        pairs = list(combinations(several, 2))
        verdicts = [_differ(a, b) if by_value else None for a, b in pairs]
        joined[problem] = [pair for pair, same in zip(pairs, verdicts, strict=True) if same]
        undecided[problem] = [pair for pair, same in zip(pairs, verdicts, strict=True) if same is None]
    distinct = list(dict.fromkeys(pair for pairs in undecided.values() for pair in pairs))
    found = dict(zip(distinct, equal(distinct) if distinct else (), strict=True))
    return [
        (problem, text, first)
        for problem, several in texts.items()
        for text, first in _firsts(several, [*joined[problem], *(p for p in undecided[problem] if found[p])]).items()
        if text != first
    ]


def _differ(one: str, other: str) -> bool | None:
    """Return whether two different texts have the same value, by exact arithmetic; None if undecided."""
    if INTEGER.fullmatch(one) and INTEGER.fullmatch(other):
        return False
    if number(one) is not None and number(other) is not None:
        start_work()
        return bool(same_terms(one, other)) and bool(same_terms(other, one))
    return None


def _firsts(texts: Sequence[str], equals: Iterable[Pair]) -> dict[str, str]:
    """Return text → the first text of its class, following chains of equal pairs."""
    place = {text: i for i, text in enumerate(texts)}
    equal_NN = np.zeros((len(texts), len(texts)), bool)
    for one, other in equals:
        equal_NN[place[one], place[other]] = True
    classes = joined(equal_NN | equal_NN.T)
    return {text: texts[classes.index(one)] for text, one in zip(texts, classes, strict=True)}


# Calibration: the similarity threshold above which two traces count as the same, and its precision and recall.


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGroup:
    """similarity_NN: similarities of one problem's traces; solution_N: the label of each trace's solution. Groups are
    compared by identity, so that results can be cached."""

    similarity_NN: np.ndarray
    solution_N: Sequence[str]


class Counts(NamedTuple):
    """Numbers of pairs of labelled traces: joined by the partition or not (positive, negative), correctly or not (true,
    false)."""

    true_joined: int = 0
    false_joined: int = 0
    false_apart: int = 0
    true_apart: int = 0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall; 0 if no pair is joined.

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

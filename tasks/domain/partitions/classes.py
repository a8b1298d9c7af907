"""Classes of one problem's rollouts. Axis suffix: N rollouts.

A class is a number from 0 on, in the order in which classes are first met; null where a rollout is in none. Equality is
passed on: a chain of equal answers is one class. Likeness is not: any two traces of one class are alike, for chains of
near traces would join what nobody calls the same (docs/analysis.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from tasks.domain.grading.quantities import number
from tasks.domain.grading.terms import same_numbers
from tasks.domain.partitions.cross_check import cross_check

Classes = list[int | None]


def joined(alike_NN: np.ndarray) -> list[int]:
    """Connected components of a symmetric relation: the order of rollouts changes the numbers of classes alone.

    >>> joined(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool))
    [0, 1, 0]
    """
    from scipy.sparse.csgraph import connected_components

    return in_order(connected_components(alike_NN, directed=False)[1]) if len(alike_NN) else []


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
    return list(Counter(one for one in classes if one is not None).values())


# By trace: rollouts whose traces an encoder sets as near as it sets a trace and its rewording.
#
# The threshold is calibrated, encoder by encoder, on a labelled set (`labelled`), never typed in.


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


# By answer: rollouts whose answers the grader calls equal, whatever their spelling.

Pair = tuple[str, str]
#: Are the two answers of each pair the same?
Equal = Callable[[Sequence[Pair]], Sequence[bool]]
#: Written so, two answers are the same if and only if they are the same text.
INTEGER = re.compile(r"-?[1-9]\d{0,17}|0")


def by_answer(canonical_G: Sequence[str | None], correct_G: Sequence[bool], equal: Equal) -> Classes:
    """0 for every correct answer; 1, 2, … for wrong ones, in the order of their texts; null without an answer.

    >>> by_answer(["4", "7", None, "0.5", "1/2"], [True, False, False, False, False], lambda pairs: [True] * len(pairs))
    [0, 2, None, 1, 1]
    """
    wrong = sorted({a for a, right in zip(canonical_G, correct_G, strict=True) if not right and a is not None})
    told = {text: first for _, text, first in same_answers({"": wrong}, equal)}
    firsts = sorted({told.get(text, text) for text in wrong})
    places = {text: 1 + firsts.index(told.get(text, text)) for text in wrong}
    return [0 if right else None if a is None else places[a] for a, right in zip(canonical_G, correct_G, strict=True)]


def same_answers(texts: Mapping[str, Sequence[str]], equal: Equal, by_value: bool = True) -> list[tuple[str, str, str]]:
    """(problem, answer, the first answer that it equals), for answers that equal an earlier one of their problem.

    by_value: they are mathematics. Then numbers are compared here; what the cross check's arithmetic tells apart is not
    asked of `equal`.

    >>> same_answers({"p": ["0.5", "1/2", "7"], "q": ["even", "is even"]}, lambda pairs: [True] * len(pairs))
    [('p', '1/2', '0.5'), ('q', 'is even', 'even')]
    """
    joined: dict[str, list[Pair]] = {}
    asked: dict[str, list[Pair]] = {}
    for problem, several in texts.items():
        pairs = list(combinations(several, 2))
        told = [_told_apart(a, b) if by_value else None for a, b in pairs]
        joined[problem] = [pair for pair, same in zip(pairs, told, strict=True) if same]
        asked[problem] = [pair for pair, same in zip(pairs, told, strict=True) if same is None]
    distinct = list(dict.fromkeys(pair for pairs in asked.values() for pair in pairs))
    found = dict(zip(distinct, equal(distinct) if distinct else (), strict=True))
    return [
        (problem, text, first)
        for problem, several in texts.items()
        for text, first in _firsts(several, [*joined[problem], *(p for p in asked[problem] if found[p])]).items()
        if text != first
    ]


def _told_apart(one: str, other: str) -> bool | None:
    """Are two different texts the same value, by exact arithmetic; null if that cannot tell."""
    if INTEGER.fullmatch(one) and INTEGER.fullmatch(other):
        return False
    a, b = number(one), number(other)
    if a is not None and b is not None:
        return bool(same_numbers(a, b)) and bool(same_numbers(b, a))
    return False if cross_check(one, other) == "different" else None


def _firsts(texts: Sequence[str], equals: Iterable[Pair]) -> dict[str, str]:
    """Text → the first of its class, by chains of equal pairs."""
    place = {text: i for i, text in enumerate(texts)}
    equal_NN = np.zeros((len(texts), len(texts)), bool)
    for one, other in equals:
        equal_NN[place[one], place[other]] = True
    classes = joined(equal_NN | equal_NN.T)
    return {text: texts[classes.index(one)] for text, one in zip(texts, classes, strict=True)}

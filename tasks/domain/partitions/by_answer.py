"""By answer: rollouts whose answers the grader calls equal, whatever their spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from tasks.domain.grading.cross_check import cross_check
from tasks.domain.grading.quantities import number
from tasks.domain.grading.terms import same_numbers
from tasks.domain.partitions.classes import Classes

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
    """Text → the first of its class: union–find over equal pairs."""
    parent = {text: text for text in texts}
    place = {text: i for i, text in enumerate(texts)}

    def root(text: str) -> str:
        while parent[text] != text:
            parent[text] = text = parent[parent[text]]
        return text

    for one, other in equals:
        first, second = sorted((root(one), root(other)), key=place.__getitem__)
        parent[second] = first
    return {text: root(text) for text in texts}

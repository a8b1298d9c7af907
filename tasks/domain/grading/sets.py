r"""Sets of real numbers in any notation: intervals, inequalities, unions, excluded numbers.

Two sets are equal if they agree at test points: every endpoint of either, one point between neighbouring endpoints, and
one beyond them. Endpoints with letters are tested with several values of the letters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mpmath import mp

from tasks.domain.grading.formulas import Unreadable, number, parse
from tasks.domain.grading.shapes import Shape, is_inequality, is_name, named, shape
from tasks.domain.grading.values import MAX_DIGITS, Undecided, real, values

#: Numbers at which letters in the ends are tried.
TRIED = 3
_COMPARE = {
    "<": operator.lt,
    ">": operator.gt,
    r"\le": operator.le,
    r"\ge": operator.ge,
    "=": operator.eq,
    r"\ne": operator.ne,
}
_ABSOLUTE = re.compile(r"(?:\||\\lvert ?)(?P<name>[A-Za-z])(?:\|| ?\\rvert)")
_WITHOUT = re.compile(r"(?P<whole>.+?) ?(?:\\(?:setminus|backslash)(?![A-Za-z])|-) ?\\\{(?P<points>[^{}]*)\\\}")
_INFINITE = {r"\infty": mp.inf, r"+\infty": mp.inf, r"-\infty": -mp.inf}


@dataclass(frozen=True, slots=True)
class RealSet:
    """ends: possible endpoints, as texts. holds: whether it contains a number, given the values of texts."""

    ends: tuple[str, ...]
    holds: Callable[[Any, Callable[[str], Any]], bool]


def real_set(found: Shape) -> RealSet | None:
    """The set described by an answer; None if it is not a set."""
    if found.kind == "interval" or (found.kind == "tuple" and len(found.items) == 2 and found.marks == ("(", ")")):
        low, high = (item.text for item in found.items)
        closed = found.marks[0] == "[", found.marks[1] == "]"
        if any(shut and _is_infinite(end) for shut, end in zip(closed, (low, high), strict=True)):
            return None
        return _chain((low, None, high), [r"\le" if shut else "<" for shut in closed])
    if found.kind == "set":
        return _points([item.text for item in found.items])
    if found.kind == "scalar" or (found.kind == "union" and r"\setminus" in found.text):
        without = _WITHOUT.fullmatch(found.text)  # `A \cup B \setminus \{c\}` takes c out of both
        whole = real_set(shape(without["whole"])) if without else None
        return _joined([whole, *_except(without["points"].split(","))], all) if without and whole else None
    if found.kind in ("union", "choice", "list"):
        return _several(found)
    return _relation(found) if found.kind == "relation" else None


def _is_infinite(text: str) -> bool:
    return text.replace(" ", "") in _INFINITE


def _chain(terms: Sequence[str | None], signs: Sequence[str], absolute: bool = False) -> RealSet:
    """The numbers (or those with an absolute value) that satisfy a chain of comparisons in place of None."""

    def holds(x: Any, value: Callable[[str], Any]) -> bool:
        numbers = [
            (abs(x) if absolute else x)
            if term is None
            else value(term.replace(" ", "") if _is_infinite(term) else term)
            for term in terms
        ]
        return all(_COMPARE[sign](*pair) for sign, pair in zip(signs, pairwise(numbers), strict=True))

    ends = tuple(term for term in terms if term is not None and not _is_infinite(term))
    return RealSet(ends + tuple(f"-({end})" for end in ends if absolute), holds)


def _points(texts: list[str]) -> RealSet:
    return _joined([_chain((None, text), ["="]) for text in texts], any)


def _except(texts: list[str]) -> list[RealSet]:
    return [_chain((None, text), [r"\ne"]) for text in texts]


def _joined(parts: list[RealSet], join: Callable[[Any], bool]) -> RealSet:
    ends = tuple(end for part in parts for end in part.ends)
    return RealSet(ends, lambda x, value: join(part.holds(x, value) for part in parts))


def _several(found: Shape) -> RealSet | None:
    names = [named(item) for item in found.items if item.kind == "relation"]
    if names and not set.intersection(*names):
        return None
    if found.kind == "list" and not all(is_inequality(i) or r"\ne" in i.marks for i in found.items[:2]):
        return None
    parts: list[RealSet] = []
    for place, item in enumerate(found.items):
        excluded = item.kind == "scalar" and found.kind == "list" and place > 1  # `x \ne 1, 2`
        if excluded and r"\ne" not in found.items[1].marks:
            return None
        part = _except([item.text])[0] if excluded else real_set(item)
        if part is None:
            return None
        parts.append(part)
    return _joined(parts, all if found.kind == "list" or {*found.marks} & {"and", "land"} else any)


def _relation(found: Shape) -> RealSet | None:
    items, marks = found.items, found.marks
    if marks == (r"\in",):
        return real_set(items[1])
    subjects = [bool(_ABSOLUTE.fullmatch(item.text)) or is_name(item.text) for item in items]
    place = subjects.index(True) if True in subjects else -1
    single = len(items) == 2 and place >= 0 and (is_inequality(found) or is_name(items[0].text))
    between = len(items) == 3 and is_inequality(found) and subjects[1]
    if not (single or between) or not {*marks} <= {*_COMPARE}:
        return None
    terms: list[str | None] = [item.text for item in items]
    place = 1 if between else place
    terms[place] = None
    return _chain(terms, marks, absolute=bool(_ABSOLUTE.fullmatch(items[place].text)))


def same_set(one: RealSet, other: RealSet) -> bool | None:
    """Are two sets equal? None if an endpoint is not a real number."""
    texts = tuple(dict.fromkeys((*one.ends, *other.ends)))
    try:
        ends = [parse(text) for text in texts]
        tried = list(values((*ends, number(0))))
    except (Unreadable, Undecided):
        return None
    if not tried or any(isinstance(v, mp.mpc | mp.matrix) for found, _ in tried for v in found):
        return None
    with mp.workdps(MAX_DIGITS):
        for found, slack in tried[:TRIED]:
            places: list[Any] = []
            for value in sorted(map(real, found)):
                places += [] if places and value - places[-1] <= real(slack) else [value]
            known = {
                text: next(place for place in places if abs(real(value) - place) <= real(slack))
                for text, value in zip(texts, found, strict=False)
            }
            numbers = [places[0] - 1, *places, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 1]

            known |= _INFINITE
            if any(one.holds(x, known.__getitem__) != other.holds(x, known.__getitem__) for x in numbers):
                return False
    return True

r"""Sets of real numbers in any notation: intervals, inequalities, unions, excluded numbers.

Two sets are equal if they agree at test points: every endpoint of either, one point between neighbouring endpoints, and
one beyond them. Endpoints with letters are tested with several values of the letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mpmath import mp

from tasks.domain.grading.formulas import Unreadable, number, parse
from tasks.domain.grading.shapes import Shape, is_inequality, is_name, named, shape
from tasks.domain.grading.terms import MIRROR
from tasks.domain.grading.values import MAX_DIGITS, Undecided, real, values

#: Numbers at which letters in the ends are tried.
TRIED = 3
_LESS = {"<", r"\le"}
_ABSOLUTE = re.compile(r"(?:\||\\lvert ?)(?P<name>[A-Za-z])(?:\|| ?\\rvert)")
_WITHOUT = re.compile(r"(?P<whole>.+?) ?(?:\\(?:setminus|backslash)(?![A-Za-z])|-) ?\\\{(?P<points>[^{}]*)\\\}")
_INFINITE = {r"\infty": mp.inf, r"+\infty": mp.inf, r"-\infty": -mp.inf}

#: The value of an end.
Value = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class RealSet:
    """ends: possible endpoints, as texts. holds: whether it contains a number, given values of the endpoints. single:
    whether it lists individual numbers."""

    ends: tuple[str, ...]
    holds: Callable[[Any, Value], bool]
    single: bool = False


def real_set(found: Shape) -> RealSet | None:
    """The set described by an answer; None if it is not a set."""
    pair = found.kind == "tuple" and len(found.items) == 2 and found.marks == ("(", ")")
    if found.kind == "interval" or pair:
        return _interval(found.items[0].text, found.items[1].text, *found.marks)
    if found.kind == "set":
        return _points([item.text for item in found.items])
    if found.kind == "scalar":
        return _without(found.text)
    if found.kind == "union" and r"\setminus" in found.text:
        return _without(found.text)  # `A \cup B \setminus \{c\}` takes c out of both
    if found.kind in ("union", "choice", "list"):
        return _several(found)
    return _relation(found) if found.kind == "relation" else None


def _interval(low: str, high: str, opening: str, closing: str) -> RealSet | None:
    if (opening == "[" and not _finite(low)) or (closing == "]" and not _finite(high)):
        return None

    def holds(x: Any, value: Value) -> bool:
        above = _sign(x, value(low)) >= (opening != "[")
        return above and _sign(value(high), x) >= (closing != "]")

    return RealSet(_finite(low, high), holds)


def _finite(*ends: str) -> tuple[str, ...]:
    return tuple(end for end in ends if end.replace(" ", "") not in _INFINITE)


def _points(texts: list[str]) -> RealSet:
    return RealSet(tuple(texts), lambda x, value: any(_sign(x, value(text)) == 0 for text in texts), single=True)


def _complement(some: RealSet) -> RealSet:
    return RealSet(some.ends, lambda x, value: not some.holds(x, value))


def _joined(parts: list[RealSet], every: bool) -> RealSet:
    join = all if every else any
    ends = tuple(end for part in parts for end in part.ends)
    return RealSet(ends, lambda x, value: join(p.holds(x, value) for p in parts), all(p.single for p in parts))


def _without(text: str) -> RealSet | None:
    found = _WITHOUT.fullmatch(text)
    whole = real_set(shape(found["whole"])) if found else None
    if found is None or whole is None:
        return None
    return _joined([whole, _complement(_points(found["points"].split(",")))], every=True)


def _several(found: Shape) -> RealSet | None:
    names = [named(item) for item in found.items if item.kind == "relation"]
    if names and not set.intersection(*names):
        return None
    parts: list[RealSet] = []
    for item in found.items:
        if item.kind == "scalar" and found.kind == "list" and len(parts) > 1:  # `x \ne 1, 2`
            part = _complement(_points([item.text])) if r"\ne" in found.items[1].marks else None
        else:
            part = real_set(item)
        if part is None:
            return None
        parts.append(part)
    every = found.kind == "list" or bool({*found.marks} & {"and", "land"})
    if found.kind == "list" and not all(is_inequality(i) or r"\ne" in i.marks for i in found.items[:2]):
        return None
    return _joined(parts, every)


def _relation(found: Shape) -> RealSet | None:
    items, marks = found.items, found.marks
    if marks == (r"\in",):
        return real_set(items[1])
    if marks == ("=",) and is_name(items[0].text):
        return _points([items[1].text])
    if marks == (r"\ne",) and is_name(items[0].text):
        return _complement(_points([items[1].text]))
    if not is_inequality(found) or not ({*marks} <= _LESS or not {*marks} & _LESS):
        return None
    if not {*marks} <= _LESS:
        items, marks = items[::-1], tuple(MIRROR[m] for m in marks[::-1])
    names = [bool(_ABSOLUTE.fullmatch(item.text)) or is_name(item.text) for item in items]
    if len(items) == 3 and names[1]:
        place = 1
    elif len(items) == 2 and any(names):  # of two letters the one written first
        place = items.index(found.items[0]) if all(names) else names.index(True)
    else:
        return None
    low = items[place - 1].text if place else r"-\infty"
    high = items[place + 1].text if place + 1 < len(items) else r"\infty"
    closed = [m == r"\le" for m in marks]
    opening = "[" if place and closed[place - 1] else "("
    inside = _interval(low, high, opening, "]" if place + 1 < len(items) and closed[place] else ")")
    if inside is None or not _ABSOLUTE.fullmatch(items[place].text):
        return inside
    ends = tuple(sign for end in inside.ends for sign in (end, f"-({end})"))
    return RealSet(ends, lambda x, value: inside.holds(abs(x), value))


def _sign(one: Any, other: Any) -> int:
    return (one > other) - (one < other)


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

            def look_up(text: str, known: dict[str, Any] = known) -> Any:
                return known[text] if text in known else _INFINITE[text.replace(" ", "")]

            if any(one.holds(x, look_up) != other.holds(x, look_up) for x in numbers):
                return False
    return True

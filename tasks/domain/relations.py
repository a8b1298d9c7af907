r"""What relations say: which intervals an inequality describes, what is a name and what has a value."""

from __future__ import annotations

import re

from tasks.domain.shapes import Shape

MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_ORDER = set(MIRROR)


def intervals(found: Shape) -> list[Shape] | None:
    r"""Intervals (and finite sets) that an answer is the union of; null if it is no such thing.

    >>> from tasks.domain.shapes import shape
    >>> [i.marks for i in intervals(shape(r"1 < x \le 2"))]
    [('(', ']')]
    """
    if found.kind == "interval":
        return [found]
    if found.kind == "tuple" and len(found.items) == 2 and found.marks == ("(", ")"):
        return [Shape("interval", found.text, found.items, found.marks)]
    if found.kind == "set":
        return [found]
    if found.kind in ("union", "choice"):
        parts = [intervals(item) for item in found.items]
        return None if any(p is None for p in parts) else [i for p in parts if p is not None for i in p]
    if found.kind == "relation":
        return _solved(found)
    return None


def _solved(relation: Shape) -> list[Shape] | None:
    if relation.marks == (r"\in",):
        return intervals(relation.items[1])
    if relation.marks == ("=",) and is_name(relation.items[0].text):
        return [Shape("set", relation.text, (relation.items[1],))]
    if not is_inequality(relation):
        return None
    items, marks = list(relation.items), list(relation.marks)
    if set(marks) <= {">", r"\ge"}:
        items, marks = items[::-1], [MIRROR[m] for m in marks[::-1]]
    if not set(marks) <= {"<", r"\le"}:
        return None
    low, high = Shape("scalar", r"-\infty"), Shape("scalar", r"\infty")
    if len(items) == 3 and is_name(items[1].text):
        edges = ("(" if marks[0] == "<" else "[", ")" if marks[1] == "<" else "]")
        return [Shape("interval", relation.text, (items[0], items[2]), edges)]
    if len(items) == 2 and is_name(items[0].text):
        return [Shape("interval", relation.text, (low, items[1]), ("(", ")" if marks[0] == "<" else "]"))]
    if len(items) == 2 and is_name(items[1].text):
        return [Shape("interval", relation.text, (items[0], high), ("(" if marks[0] == "<" else "[", ")"))]
    return None


def is_inequality(relation: Shape) -> bool:
    return relation.kind == "relation" and set(relation.marks) <= _ORDER


_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:text|mathrm|angle) ?\{?[A-Za-z ]+\}?)(?: ?_ ?(?:\{[^{}]*\}"
    r"|\w))?'*(?: ?\([A-Za-z](?:, ?[A-Za-z])*\))?"
)


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text.strip()))


def is_closed(text: str) -> bool:
    r"""No variables: only numbers, operators and named constants.

    >>> is_closed(r"2\sqrt{3}+\pi"), is_closed("2n")
    (True, False)
    """
    rest = re.sub(r"\\(?!text|mathrm)[A-Za-z]+", "", text)
    return bool(text) and not re.search(r"[A-Za-z]", rest.replace("e", "", 1) if rest.strip() == "e" else rest)


def subject(relation: Shape) -> str | None:
    return next((i.text for i in relation.items if is_name(i.text) and not is_closed(i.text)), None)

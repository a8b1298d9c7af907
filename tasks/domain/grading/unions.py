r"""Unions of intervals that overlap or touch, as one set: `(0,2)\cup(1,3)` is `(0,3)`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from tasks.domain.grading.quantities import number
from tasks.domain.grading.shapes import Shape
from tasks.domain.grading.terms import Same

#: Unions of more are compared piece by piece, as they are written.
MAX_PIECES = 12


class _NoOrder(Exception):
    """Nobody can tell which of two ends is the larger one."""


def merged(pieces: Sequence[Shape], same: Same) -> list[Shape]:
    r"""Pieces (intervals, finite sets) as intervals that neither overlap nor touch, ascending; as they are if one of
    them is empty, or if their ends have no order.

    >>> from tasks.domain.grading.relations import intervals
    >>> from tasks.domain.grading.shapes import shape
    >>> def ends(text):
    ...     whole = merged(intervals(shape(text)), lambda one, other: one == other)
    ...     return [(i.marks[0] + i.items[0].text, i.items[1].text + i.marks[1]) for i in whole]
    >>> ends(r"(0,2)\cup(1,3]"), ends(r"(2,\infty)\cup(0,2)\cup\{2\}"), ends(r"(2,3)\cup(0,2)")
    ([('(0', '3]')], [('(0', '\\infty)')], [('(0', '2)'), ('(2', '3)')])
    """
    apart = [one for piece in pieces for one in _as_intervals(piece)]
    if not 1 < len(apart) <= MAX_PIECES:
        return list(pieces)
    try:
        apart.sort(key=lambda piece: piece.marks[0] == "(")
        apart.sort(key=cmp_to_key(lambda a, b: _order(a.items[0], b.items[0], same)))
        whole = apart[:1]
        for piece in apart[1:]:
            whole[-1:] = _joined(whole[-1], piece, same)
    except _NoOrder:
        return list(pieces)
    return whole


def _as_intervals(piece: Shape) -> list[Shape]:
    return [piece] if piece.kind == "interval" else [Shape("interval", i.text, (i, i), ("[", "]")) for i in piece.items]


def _joined(one: Shape, other: Shape, same: Same) -> list[Shape]:
    """One interval, if the two overlap or touch; the first begins no later."""
    (low, high), (other_low, other_high) = one.items, other.items
    gap = _order(other_low, high, same)
    if _order(low, high, same) > 0 or _order(other_low, other_high, same) > 0:
        raise _NoOrder
    if gap > 0 or (gap == 0 and one.marks[1] == ")" and other.marks[0] == "("):
        return [one, other]
    opening = one.marks[0] if _order(low, other_low, same) or one.marks[0] == "[" else other.marks[0]
    beyond = _order(other_high, high, same)
    closing = {1: other.marks[1], -1: one.marks[1]}.get(beyond) or max(one.marks[1], other.marks[1])
    return [Shape("interval", one.text, (low, other_high if beyond > 0 else high), (opening, closing))]


def _order(one: Shape, other: Shape, same: Same) -> int:
    """-1, 0 or 1. What has no plain number is compared by whether a difference is its own absolute value."""
    a, b = one.text.replace(" ", "").lstrip("+"), other.text.replace(" ", "").lstrip("+")
    if a == b:
        return 0
    for text, sign in ((a, 1), (b, -1)):
        if text in (r"\infty", r"-\infty"):
            return -sign if text.startswith("-") else sign
    left, right = number(one.text), number(other.text)
    if left is not None and right is not None and left.unit == right.unit:
        return (left.value > right.value) - (left.value < right.value)
    at_least, at_most = (same(f"|{x}-({y})|", f"{x}-({y})") for x, y in ((a, b), (b, a)))
    if not (at_least or at_most):
        raise _NoOrder
    return at_least - at_most

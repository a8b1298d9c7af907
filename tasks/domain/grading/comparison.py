"""Is one answer the other? Forms are compared exactly; terms by a function that the caller chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Literal

from tasks.domain.grading.quantities import number
from tasks.domain.grading.relations import (
    MIRROR,
    in_order_of,
    intervals,
    is_closed,
    is_inequality,
    is_label,
    is_name,
    named,
    named_values,
    renamed,
    same_label,
)
from tasks.domain.grading.shapes import Agree, Shape, alike, as_sets, in_order, one_to_one, shape
from tasks.domain.grading.terms import Same, squeeze

_SEVERAL = ("list", "choice", "set")


def compare(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    """(verdict, reason) of a prediction's form against the gold's."""
    condition = prediction.condition
    if condition not in ("", gold.condition) and (gold.condition or re.search(r"[23]$|>1$", condition)):
        return WRONG
    if prediction.text == gold.text or squeeze(prediction.text) == squeeze(gold.text):
        return "correct", "identical text"
    if _joined_otherwise(prediction, gold):
        return WRONG
    prediction, gold = alike(prediction, gold)
    inequalities = gold.kind == "choice" and all(map(is_inequality, gold.items))
    if (
        (gold.kind in ("scalar", "list") or inequalities)
        and intervals(gold) is not None
        and intervals(prediction) is not None
    ):
        return _against_intervals(prediction, gold, same)
    match gold.kind:
        case "list" | "choice":
            return _against_list(prediction, gold, same)
        case "set":
            return _against_set(prediction, gold, same)
        case "tuple":
            return _against_tuple(prediction, gold, same)
        case "interval" | "union":
            return _against_intervals(prediction, gold, same)
        case "relation":
            return against_relation(prediction, gold, same, compare)
        case _:
            return _against_scalar(prediction, gold, same)


def _joined_otherwise(prediction: Shape, gold: Shape) -> bool:
    """Does one say `and` where the other says `or`? Between values of one thing both only list them."""
    some = [found for found in (prediction, gold) if found.kind == "choice"]
    signs = {mark for found in some for mark in found.marks}
    symbols = {mark for mark in signs if mark[0] == "l"}
    listed = all(_lists_values(found) for found in some) and (not symbols or (symbols == {"lor"} and len(some) == 1))
    if not some or listed:
        return False
    joins = [{mark[-2:] == "or" for mark in found.marks or ("and",)} for found in (prediction, gold)]
    other = gold if prediction.kind == "choice" else prediction
    return joins[0] != joins[1] and (len(some) == 2 or other.kind in ("tuple", "list") or is_system(other))


def is_system(found: Shape) -> bool:
    """Is it an equation between tuples, which gives a value to each of several names?"""
    return found.kind == "relation" and found.items[0].kind == "tuple"


def _lists_values(found: Shape) -> bool:
    """Are its parts values, or equations that all give values to the same name?"""
    names = {item.items[0].text if item.kind == "relation" else "" for item in found.items}
    return len(names) == 1 and all(i.kind != "relation" or set(i.marks) <= {"="} for i in found.items)


def _conclusion(steps: Shape, same: Same) -> Shape | None:
    """The value in which steps end (`3y=15, y=5`): the last of some equations, if it makes all of them true."""
    equations = steps.items
    if {*steps.marks} & {"or", "lor"} or not all(i.kind == "relation" and {*i.marks} == {"="} for i in equations):
        return None
    last, value = equations[-1], equations[-1].items[-1]
    known = [(squeeze(i.items[0].text), i.items[-1].text) for i in equations if is_name(i.items[0].text)]
    single = {name for name, _ in known if len(name) == 1}
    known = [(n, text) for n, text in known if is_closed(text) and not (n.isalpha() and len(n) > 1 and {*n} <= single)]
    name = squeeze(last.items[0].text)
    meant = dict(known) if name not in dict(known) else {name: value.text}
    if not is_closed(value.text) or len(known) != len(dict(known)):
        return None
    for equation in equations:
        sides = [_with_values(side.text, meant) for side in equation.items]
        if not all(map(is_closed, sides)) or not all(agree(shape(a), shape(b), same) for a, b in pairwise(sides)):
            return None
    return value


def _with_values(text: str, values: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        factor = r"\cdot " if re.search(r"[\w)}]$", text[: found.start()]) else ""
        return f"{factor}({values[squeeze(found[0])]})" if squeeze(found[0]) in values else found[0]

    return re.sub(r"\\[A-Za-z]+(?:_\{?\w+\}?)?|[A-Za-z](?:_\{?\w+\}?)?'*", value, text)


def _agreeing(same: Same) -> Agree:
    return lambda prediction, gold: agree(prediction, gold, same)


def agree(prediction: Shape, gold: Shape, same: Same) -> bool:
    return compare(prediction, gold, same)[0] == "correct"


def _against_scalar(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if r"\pmod" in prediction.text and r"\pmod" not in gold.text and prediction.kind == "scalar":
        return _against_residue(prediction, gold, same)
    if prediction.kind == "relation":
        value = value_of(prediction, _agreeing(same))
        return ("wrong", value) if isinstance(value, str) else compare(value, gold, same)
    if prediction.kind in _SEVERAL and prediction.items:
        if (value := _conclusion(prediction, same)) is not None:
            return compare(value, gold, same)
        first, *others = prediction.items
        if all(agree(other, first, same) for other in others):
            return compare(first, gold, same)
        return "ambiguous", "several different answers"
    if prediction.kind != "scalar":
        return "wrong", f"a {prediction.kind} where one value is asked for"
    return RIGHT if same(prediction.text, gold.text) else WRONG


_RESIDUE = re.compile(r"(\d+) ?\\pmod ?\{ ?(\d+) ?\}")


def _against_residue(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    r"""`1 \pmod 3` says 1; `4 \pmod 3` and `n \pmod 3` name a class and no number."""
    found = _RESIDUE.fullmatch(prediction.text)
    if found is None or int(found[1]) >= int(found[2]):
        return "wrong", "a class where one value is asked for"
    return compare(shape(found[1]), gold, same)


def _against_list(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    """Order is free, multiplicity counts; a parenthesised answer must keep the order it shows."""
    if prediction.kind == "union" and all(i.kind == "set" for i in prediction.items):
        return _against_set(prediction, gold, same)
    if all(i.kind == "relation" and is_name(i.items[0].text) for i in gold.items):
        prediction = in_order_of([i.items[0] for i in gold.items], prediction)
    items = _elements(prediction, gold)
    if items is None:
        return "wrong", f"a {prediction.kind} where {len(gold.items)} values are asked for"
    if prediction.kind == "tuple":
        return RIGHT if in_order(items, gold.items, _agreeing(same)) else WRONG
    if prediction.kind == "set":
        return RIGHT if as_sets(items, gold.items, _agreeing(same)) else WRONG
    return RIGHT if one_to_one(items, gold.items, _agreeing(same)) else WRONG


def _elements(prediction: Shape, gold: Shape) -> Sequence[Shape] | None:
    if prediction.kind in (*_SEVERAL, "tuple"):
        return prediction.items
    if prediction.kind == "relation" and prediction.marks[-1] in (r"\in", "="):
        inner = prediction.items[-1]
        return inner.items if inner.kind in _SEVERAL else None
    return None


def _against_set(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if prediction.kind == "relation" and prediction.marks[-1] in (r"\in", "="):
        prediction = prediction.items[-1]
    if prediction.kind == "scalar" and len(gold.items) == 1:
        return compare(prediction, gold.items[0], same)
    if prediction.kind == "union" and all(i.kind == "set" for i in prediction.items):
        prediction = Shape("set", prediction.text, tuple(i for some in prediction.items for i in some.items))
    items = prediction.items if prediction.kind in _SEVERAL else _elements(prediction, gold)
    if prediction.kind == "tuple" or items is None:
        return "wrong", f"a {prediction.kind} where a set is asked for"
    return RIGHT if as_sets(items, gold.items, _agreeing(same)) else WRONG


def _against_tuple(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    inequalities = prediction.items if prediction.kind in ("choice", "list") else (prediction,)
    if len(gold.items) == 2 and gold.marks == ("(", ")") and all(map(is_inequality, inequalities)):
        return _against_intervals(prediction, Shape("interval", gold.text, gold.items, gold.marks), same)
    if len(gold.items) == 2 and gold.marks == ("(", ")") and prediction.text.count(r"\cup"):
        return _against_intervals(prediction, Shape("interval", gold.text, gold.items, gold.marks), same)
    if prediction.kind == "relation":
        if any(is_closed(item.text) and not agree(item, prediction.items[-1], same) for item in prediction.items[:-1]):
            return "wrong", "false equation"
        if prediction.marks[-1] in ("=", r"\in", r"\equiv") and prediction.items[-1].kind == "tuple":
            return _against_tuple(prediction.items[-1], gold, same)
        named = prediction.items[0].kind in ("tuple", "list") and prediction.items[-1].kind in ("tuple", "list")
        if named and not set(prediction.marks) & {r"\ne", "<", ">"}:
            return compare(prediction.items[-1], gold, same)
    if prediction.kind in _SEVERAL and len(prediction.items) == 1:
        return compare(prediction.items[0], gold, same)
    if prediction.kind == "list" or (prediction.kind == "choice" and not re.search(r"\bor\b|vee|lor", prediction.text)):
        return RIGHT if in_order(named_values(prediction.items), gold.items, _agreeing(same)) else WRONG
    if prediction.kind != "tuple":
        return "wrong", f"a {prediction.kind} where a tuple is asked for"
    return RIGHT if in_order(prediction.items, gold.items, _agreeing(same)) else WRONG


def _against_intervals(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    got, want = intervals(prediction), intervals(gold)
    if got is None or want is None:
        return "wrong", f"a {prediction.kind} where an interval is asked for"

    def covers(some: list[Shape], others: list[Shape]) -> bool:
        return all(any(_same_piece(a, b, same) for b in others) for a in some)

    if covers(got, want) and covers(want, got):
        return RIGHT
    if not any(piece.kind == "interval" for piece in want):
        return WRONG
    got, want = merged(got, same), merged(want, same)
    return RIGHT if in_order(got, want, lambda one, other: _same_piece(one, other, same)) else WRONG


def _same_piece(one: Shape, other: Shape, same: Same) -> bool:
    if one.kind != other.kind or one.marks != other.marks:
        return False
    if one.kind == "set":
        return as_sets(one.items, other.items, _agreeing(same))
    return in_order(one.items, other.items, _agreeing(same))


Judgement = tuple[Literal["correct", "wrong", "ambiguous"], str]
#: Compares the parts of a relation, whatever form they have: `tasks.domain.grading.comparison.compare`.
Compare = Callable[[Shape, Shape, Same], Judgement]
_PRODUCT = re.compile(r"[a-z]{2,3}")
RIGHT: Judgement = ("correct", "equal")
WRONG: Judgement = ("wrong", "not equal")


def _agreeing_by(same: Same, compare: Compare) -> Agree:
    return lambda prediction, gold: compare(prediction, gold, same)[0] == "correct"


def value_of(relation: Shape, agree: Agree) -> Shape | str:
    """What a chain of equations says its subject is; a reason if it says something false or nothing at all."""
    if "\\ne" in relation.marks:
        return "states what the answer is not"
    if not set(relation.marks) <= {"=", r"\approx", r"\in", r"\equiv"}:
        return "an inequality where one value is asked for"
    named = not is_closed(relation.items[0].text)
    exact = 1 + next((i for i, m in enumerate(relation.marks) if m == r"\approx" and i >= named), len(relation.marks))
    parts = [p for p in relation.items[:exact] if p.text]
    if exact == 1 and parts:
        return parts[0]
    if len(parts) < 2:
        return "incomplete equation"
    last = parts[-1]
    closed = [p for p in parts if is_closed(p.text)]
    for one, other in pairwise(closed):
        if not agree(one, other):
            return f"false equation: {one.text} = {other.text}"[:200]
    if closed and not is_closed(last.text):
        return closed[-1] if is_name(last.text) else last
    return last


def against_relation(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    """(verdict, reason) of any prediction where the gold is an equation, an inequality, or a value with its name."""
    if is_inequality(gold):
        return _against_inequality(prediction, gold, same, compare)
    if set(gold.marks) <= {"=", r"\equiv"} and is_name(gold.items[0].text):
        return _against_assignment(prediction, gold, same, compare)
    if gold.marks == ("=",) and gold.items[0].kind == "tuple" == gold.items[1].kind:
        return compare(in_order_of(gold.items[0].items, prediction), gold.items[1], same)
    if gold.marks == (r"\in",):
        return compare(prediction, gold.items[1], same)
    if r"\approx" in gold.marks:
        return _against_approximation(prediction, gold, same, compare)
    if set(gold.marks) == {"="} and is_label(gold.items[0].text):
        return _against_label(prediction, gold, same, compare)
    if all(is_closed(item.text) for item in gold.items) and prediction.kind in ("scalar", "relation"):
        value = value_of(prediction, _agreeing_by(same, compare)) if prediction.kind == "relation" else prediction
        return ("wrong", value) if isinstance(value, str) else compare(value, gold.items[-1], same)
    if prediction.kind != "relation":
        return WRONG
    return RIGHT if same(prediction.text, gold.text) else WRONG


def _against_label(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    r"""A gold such as `|AB| = 1` takes the value, alone or with its label; what another label is says nothing."""
    if prediction.kind == "relation" and set(prediction.marks) <= {"=", r"\approx"}:
        label, asked = prediction.items[0].text, gold.items[0].text
        if same_label(label, asked):
            prediction = prediction.items[-1]
        elif is_label(label) or is_name(label):
            sums = "(" not in label + asked and same(prediction.text, gold.text)
            return RIGHT if sums else ("wrong", f"about {label}, not {asked}"[:200])
    return compare(prediction, gold.items[-1], same)


def _against_approximation(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    r"""A gold such as `x = \frac{1}{\sqrt 3} \approx 0.577` takes the exact value and, as written, the rounded one."""
    value = value_of(prediction, _agreeing_by(same, compare)) if prediction.kind == "relation" else prediction
    if isinstance(value, str):
        return "wrong", value
    values = [item for item in gold.items if is_closed(item.text)]
    return next((found for item in values if (found := compare(value, item, same))[0] == "correct"), WRONG)


def _against_inequality(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    asked, told = named(gold), named(prediction) if is_inequality(prediction) else set()
    if asked and told and asked != told:
        return "wrong", f"about {', '.join(sorted(told))}, not {', '.join(sorted(asked))}"[:200]
    pairs = told and len(asked) == 2 == len(gold.items)  # of letters: `a < b` is no ray
    if not pairs and (pieces := intervals(gold)) is not None and intervals(prediction) is not None:
        return compare(prediction, Shape("union", gold.text, tuple(pieces)), same)
    if prediction.kind != "relation" or len(prediction.items) != len(gold.items):
        return WRONG
    agree = _agreeing_by(same, compare)
    straight = prediction.marks == gold.marks and in_order(prediction.items, gold.items, agree)
    flipped = tuple(MIRROR.get(m, m) for m in prediction.marks[::-1]) == gold.marks
    if straight or (flipped and in_order(prediction.items[::-1], gold.items, agree)):
        return RIGHT
    return RIGHT if len(gold.items) == 2 and same(prediction.text, gold.text) else WRONG


def _against_assignment(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    name, value = gold.items[0].text, gold.items[-1]
    if prediction.kind != "relation":
        return compare(prediction, value, same)
    if not set(prediction.marks) <= {"=", r"\equiv", r"\approx"}:
        return WRONG
    left = prediction.items[0].text
    whole_function = prediction.marks[0] == r"\equiv" and re.fullmatch(
        rf"{re.escape(squeeze(left))}\([a-z]\)", squeeze(name)
    )
    if same_label(left, name) or whole_function:
        answer = value_of(prediction, _agreeing_by(same, compare))
        return ("wrong", answer) if isinstance(answer, str) else compare(answer, value, same)
    if names := renamed(name, left):
        old, new = names
        if old != new and re.search(rf"(?<![A-Za-z\\]){old}(?![A-Za-z])", prediction.items[-1].text):
            return "wrong", f"a constant {old}, not a function of it"
        body = re.sub(rf"(?<![A-Za-z\\]){new}(?![A-Za-z])", old, prediction.items[-1].text)
        return compare(shape(body), value, same)
    if squeeze(prediction.items[-1].text) == squeeze(name):
        return compare(prediction.items[0], value, same)
    if not is_name(left):
        return RIGHT if same(prediction.text, gold.text) else WRONG
    if any(_PRODUCT.fullmatch(one.strip()) for one in (name, left)) and same(prediction.text, gold.text):
        return RIGHT  # `xy = 2` is an equation as well
    return "wrong", f"names {left}, not {name}"[:200]


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

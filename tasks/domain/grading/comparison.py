"""Is one answer the other? Forms are compared exactly; terms by a function that the caller chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from tasks.domain.grading.matrices import alike
from tasks.domain.grading.relations import (
    MIRROR,
    intervals,
    is_closed,
    is_inequality,
    is_name,
    named_values,
    renamed,
    subject,
)
from tasks.domain.grading.shapes import Shape, shape
from tasks.domain.grading.terms import Same, squeeze

Judgement = tuple[Literal["correct", "wrong", "ambiguous"], str]
_SEVERAL = ("list", "choice", "set")
RIGHT: Judgement = ("correct", "equal")
WRONG: Judgement = ("wrong", "not equal")


def compare(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    """(verdict, reason) of a prediction's form against the gold's."""
    if prediction.text == gold.text:
        return "correct", "identical text"
    prediction, gold = alike(prediction, gold)
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
            return _against_relation(prediction, gold, same)
        case _:
            return _against_scalar(prediction, gold, same)


def agree(prediction: Shape, gold: Shape, same: Same) -> bool:
    return compare(prediction, gold, same)[0] == "correct"


def _against_scalar(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if r"\pmod" in prediction.text and r"\pmod" not in gold.text:
        prediction = shape(re.sub(r" ?\\pmod ?\{[^{}]*\}", "", prediction.text))
    if prediction.kind == "relation":
        value = value_of(prediction, same)
        return ("wrong", value) if isinstance(value, str) else compare(value, gold, same)
    if prediction.kind in _SEVERAL and prediction.items:
        first, *others = prediction.items
        if all(agree(other, first, same) for other in others):
            return compare(first, gold, same)
        return "ambiguous", "several different answers"
    if prediction.kind != "scalar":
        return "wrong", f"a {prediction.kind} where one value is asked for"
    return RIGHT if same(prediction.text, gold.text) else WRONG


def _against_list(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    """Order is free, multiplicity counts; a parenthesised answer must keep the order it shows."""
    items = _elements(prediction, gold)
    if items is None:
        return "wrong", f"a {prediction.kind} where {len(gold.items)} values are asked for"
    if prediction.kind == "tuple":
        return RIGHT if _in_order(items, gold.items, same) else WRONG
    if prediction.kind == "set":
        return RIGHT if _as_sets(items, gold.items, same) else WRONG
    return RIGHT if _matched(items, gold.items, same) else WRONG


def _elements(prediction: Shape, gold: Shape) -> Sequence[Shape] | None:
    if prediction.kind in (*_SEVERAL, "tuple"):
        return prediction.items
    named = all(i.kind == "relation" for i in gold.items)
    if named and prediction.kind == "relation" and prediction.items[-1].kind == "tuple":
        return prediction.items[-1].items
    if prediction.kind == "relation" and prediction.marks[-1] in (r"\in", "="):
        inner = prediction.items[-1]
        return inner.items if inner.kind in _SEVERAL else None
    if prediction.kind == "scalar" and (regrouped := _regroup(prediction.text)):
        return regrouped
    return None


def _regroup(text: str) -> Sequence[Shape] | None:
    """A list of three-digit numbers without spaces reads as one number with thousands separators."""
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        return tuple(shape(part) for part in text.split(","))
    return None


def _against_set(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if prediction.kind == "relation" and prediction.marks[-1] in (r"\in", "="):
        prediction = prediction.items[-1]
    if prediction.kind == "scalar" and len(gold.items) == 1:
        return compare(prediction, gold.items[0], same)
    items = prediction.items if prediction.kind in _SEVERAL else _elements(prediction, gold)
    if prediction.kind == "tuple" or items is None:
        return "wrong", f"a {prediction.kind} where a set is asked for"
    return RIGHT if _as_sets(items, gold.items, same) else WRONG


def _against_tuple(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    inequalities = prediction.items if prediction.kind == "choice" else (prediction,)
    if len(gold.items) == 2 and gold.marks == ("(", ")") and all(map(is_inequality, inequalities)):
        return _against_intervals(prediction, Shape("interval", gold.text, gold.items, gold.marks), same)
    if prediction.kind == "relation":
        if any(is_closed(item.text) and not agree(item, prediction.items[-1], same) for item in prediction.items[:-1]):
            return "wrong", "false equation"
        if prediction.marks[-1] in ("=", r"\in", r"\equiv") and prediction.items[-1].kind == "tuple":
            return _against_tuple(prediction.items[-1], gold, same)
        if prediction.items[0].kind in ("tuple", "list") and prediction.items[-1].kind in ("tuple", "list"):
            return compare(prediction.items[-1], gold, same)
    if prediction.kind in _SEVERAL and len(prediction.items) == 1:
        return compare(prediction.items[0], gold, same)
    if prediction.kind == "list" or (prediction.kind == "choice" and not re.search(r"\bor\b|vee|lor", prediction.text)):
        return RIGHT if _in_order(named_values(prediction.items), gold.items, same) else WRONG
    if prediction.kind != "tuple":
        return "wrong", f"a {prediction.kind} where a tuple is asked for"
    return RIGHT if _in_order(prediction.items, gold.items, same) else WRONG


def _in_order(got: Sequence[Shape], want: Sequence[Shape], same: Same) -> bool:
    return len(got) == len(want) and all(agree(g, w, same) for g, w in zip(got, want, strict=True))


def _matched(got: Sequence[Shape], want: Sequence[Shape], same: Same) -> bool:
    """One-to-one, in any order. Greedy is exact because `same` is (all but) an equivalence."""
    if len(got) != len(want):
        return False
    left = list(want)
    for item in got:
        hit = next((w for w in left if item.text == w.text), None) or next(
            (w for w in left if agree(item, w, same)), None
        )
        if hit is None:
            return False
        left.remove(hit)
    return True


def _as_sets(got: Sequence[Shape], want: Sequence[Shape], same: Same) -> bool:
    return all(any(agree(g, w, same) for w in want) for g in got) and all(
        any(agree(g, w, same) for g in got) for w in want
    )


def _against_intervals(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    got, want = intervals(prediction), intervals(gold)
    if got is None or want is None:
        return "wrong", f"a {prediction.kind} where an interval is asked for"

    def covers(some: list[Shape], others: list[Shape]) -> bool:
        return all(any(_same_piece(a, b, same) for b in others) for a in some)

    return RIGHT if covers(got, want) and covers(want, got) else WRONG


def _same_piece(one: Shape, other: Shape, same: Same) -> bool:
    if one.kind != other.kind or one.marks != other.marks:
        return False
    if one.kind == "set":
        return _as_sets(one.items, other.items, same)
    return _in_order(one.items, other.items, same)


def value_of(relation: Shape, same: Same) -> Shape | str:
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
        if not agree(one, other, same):
            return f"false equation: {one.text} = {other.text}"[:200]
    if closed and not is_closed(last.text):
        return closed[-1] if is_name(last.text) else last
    return last


def _against_relation(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if is_inequality(gold):
        return _against_inequality(prediction, gold, same)
    if set(gold.marks) <= {"=", r"\equiv"} and is_name(gold.items[0].text):
        return _against_assignment(prediction, gold, same)
    if gold.marks == ("=",) and gold.items[0].kind == "tuple" == gold.items[1].kind:
        return compare(prediction, gold.items[1], same)
    if gold.marks == (r"\in",):
        return compare(prediction, gold.items[1], same)
    if prediction.kind == "scalar":
        last = gold.items[-1]
        says_a_value = all(is_closed(item.text) for item in gold.items)
        return RIGHT if says_a_value and same(prediction.text, last.text) else WRONG
    if prediction.kind != "relation":
        return WRONG
    return RIGHT if same(prediction.text, gold.text) else WRONG


def _against_inequality(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    if is_inequality(prediction) and (one := subject(prediction)) and (other := subject(gold)) and one != other:
        return "wrong", f"about {one}, not {other}"
    if intervals(gold) is not None and intervals(prediction) is not None:
        return _against_intervals(prediction, gold, same)
    if prediction.kind != "relation" or len(prediction.items) != len(gold.items):
        return WRONG
    straight = prediction.marks == gold.marks and _in_order(prediction.items, gold.items, same)
    flipped = tuple(MIRROR.get(m, m) for m in prediction.marks[::-1]) == gold.marks
    return RIGHT if straight or (flipped and _in_order(prediction.items[::-1], gold.items, same)) else WRONG


def _against_assignment(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    name, value = gold.items[0].text, gold.items[-1]
    if prediction.kind != "relation":
        return compare(prediction, value, same)
    if not set(prediction.marks) <= {"=", r"\equiv", r"\approx"}:
        return WRONG
    left = prediction.items[0].text
    if squeeze(left) == squeeze(name):
        answer = value_of(prediction, same)
        return ("wrong", answer) if isinstance(answer, str) else compare(answer, value, same)
    if names := renamed(name, left):
        old, new = names
        body = re.sub(rf"(?<![A-Za-z\\]){new}(?![A-Za-z])", old, prediction.items[-1].text)
        return compare(shape(body), value, same)
    if not is_name(left):
        last = prediction.items[-1]
        if squeeze(last.text) == squeeze(name):
            return compare(prediction.items[0], value, same)
        return RIGHT if same(prediction.text, gold.text) else WRONG
    return "wrong", f"names {left}, not {name}"[:200]

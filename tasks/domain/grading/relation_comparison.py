"""Equations and inequalities against each other, and values against the gold that names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from tasks.domain.grading.labels import is_label, same_label
from tasks.domain.grading.matching import Agree, in_order
from tasks.domain.grading.relations import (
    MIRROR,
    in_order_of,
    intervals,
    is_closed,
    is_inequality,
    is_name,
    named,
    renamed,
)
from tasks.domain.grading.shapes import Shape, shape
from tasks.domain.grading.terms import Same, squeeze

Judgement = tuple[Literal["correct", "wrong", "ambiguous"], str]
#: Compares the parts of a relation, whatever form they have: `tasks.domain.grading.comparison.compare`.
Compare = Callable[[Shape, Shape, Same], Judgement]
_PRODUCT = re.compile(r"[a-z]{2,3}")
RIGHT: Judgement = ("correct", "equal")
WRONG: Judgement = ("wrong", "not equal")


def _agreeing(same: Same, compare: Compare) -> Agree:
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
        value = value_of(prediction, _agreeing(same, compare)) if prediction.kind == "relation" else prediction
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
        elif is_label(label) or (is_name(label) and "(" in label):
            sums = "(" not in label + asked and same(prediction.text, gold.text)
            return RIGHT if sums else ("wrong", f"about {label}, not {asked}"[:200])
    return compare(prediction, gold.items[-1], same)


def _against_approximation(prediction: Shape, gold: Shape, same: Same, compare: Compare) -> Judgement:
    r"""A gold such as `x = \frac{1}{\sqrt 3} \approx 0.577` takes the exact value and, as written, the rounded one."""
    value = value_of(prediction, _agreeing(same, compare)) if prediction.kind == "relation" else prediction
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
    agree = _agreeing(same, compare)
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
        answer = value_of(prediction, _agreeing(same, compare))
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

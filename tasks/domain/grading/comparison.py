"""Is one answer the other? Forms are compared exactly; terms by a function that the caller chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.domain.grading.matching import Agree, as_sets, in_order, one_to_one
from tasks.domain.grading.matrices import alike
from tasks.domain.grading.relation_comparison import RIGHT, WRONG, Judgement, against_relation, value_of
from tasks.domain.grading.relations import intervals, is_closed, is_inequality, named_values
from tasks.domain.grading.shapes import Shape, shape
from tasks.domain.grading.terms import Same
from tasks.domain.grading.unions import merged

_SEVERAL = ("list", "choice", "set")


def compare(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    """(verdict, reason) of a prediction's form against the gold's."""
    if prediction.text == gold.text:
        return "correct", "identical text"
    prediction, gold = alike(prediction, gold)
    if gold.kind in ("scalar", "list") and intervals(gold) is not None and intervals(prediction) is not None:
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
    return RIGHT if as_sets(items, gold.items, _agreeing(same)) else WRONG


def _against_tuple(prediction: Shape, gold: Shape, same: Same) -> Judgement:
    inequalities = prediction.items if prediction.kind == "choice" else (prediction,)
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

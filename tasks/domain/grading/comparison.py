r"""Compare two answers: their forms exactly, their terms by value, and sets of real numbers by their elements.

Exact values are compared without tolerance. A decimal may replace an exact value such as 1/3 that has no finite decimal
form. The decimal then needs at least `LEAST_DIGITS` digits, all correct; the last one may be rounded or truncated. Two
sets of reals are equal if they agree at their endpoints, between neighbouring endpoints and beyond them. If endpoints
contain letters, this is tested for several values of the letters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

from mpmath import mp

from tasks.domain.grading.formulas import (
    Expr,
    Number,
    Unreadable,
    constant,
    is_constant,
    number,
    parse,
    parsed,
    split_unit,
)
from tasks.domain.grading.reading import NOT_UNDERSTOOD, number_in_words
from tasks.domain.grading.shapes import (
    MIRROR,
    PERIODS,
    Shape,
    as_tuple,
    bare_label,
    in_order_of,
    is_closed,
    is_inequality,
    is_label,
    is_name,
    named,
    names_value,
    shape,
    squeeze,
)
from tasks.domain.grading.texts import TEXT_COMMANDS, prose_words
from tasks.domain.grading.values import (
    MAX_DIGITS,
    Undecided,
    factor_between,
    near,
    real,
    same_value,
    values,
    with_values,
)

VerdictName = Literal["correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict with its reason. answer: the text in the region; canonical: the normal form that was compared. Both
    are None if the region has no answer."""

    verdict: VerdictName
    reason: str
    answer: str | None
    canonical: str | None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


# ---- terms

LEAST_DIGITS = 6
#: The relative error of double precision. Further digits of a decimal are rounding errors.
MACHINE_TOLERANCE = Fraction(1, 10**13)
EQUAL = "equal"
#: The way in which two terms are equal: `equal`, or equal within a tolerance; empty if they differ.
Match = str


#: An option of a multiple-choice question: its letter, alone or before its text. The letter alone is a full answer.
_OPTION = re.compile(r"(?:\\\(|[(\[])?(?:\\(?:text|mathrm|textbf) ?\{)? ?\(?([A-H])\)? ?\}?[)\]]?")
_CHOICE = re.compile(r"^(\([A-H]\)) [A-Z][A-Za-z ]*$")
#: Signs around a run of capitals whose order counts: a word, a triangle, a sequence of coin tosses.
_NAMED = re.compile(r"(\\(?:angle|triangle|overline|text|mathrm|vec|overrightarrow)|[{} ])")


def decimal_tolerance(written: Number) -> Fraction:
    """Return the largest relative deviation of a decimal from its exact value: one unit in its last digit."""
    if written.place is None or abs(written.value) < written.place * 10 ** (LEAST_DIGITS - 1):
        return Fraction(0)
    return max(min(written.place / abs(written.value), Fraction(1, 10**LEAST_DIGITS)), MACHINE_TOLERANCE)


_BASED = re.compile(r"\(?(\d+)\)? ?_ ?\{? ?(?:\\(?:text|mathrm|mbox) ?\{ ?)?\(?(\d{1,2}|[a-z]+)\)?[ }]*")


def _based(text: str) -> tuple[str, int] | None:
    """Return (digits, base) of a number with an explicit base."""
    found = _BASED.fullmatch(text.strip(" $"))
    base = None if found is None else int(found[2]) if found[2].isdigit() else number_in_words(found[2])
    return (found[1], int(base)) if found and base in range(2, 37) else None  # type: ignore[arg-type]


def same_in_base(prediction: str, gold: str) -> bool | None:
    r"""Return whether two numbers are equal; None if neither has a base. The answer may omit the gold's base. A gold
    without a base has base 10.

    >>> same_in_base("101", "101_2"), same_in_base(r"7_{\text{eight}}", "7_8"), same_in_base("101_2", "5")
    (True, True, False)
    """
    want, got = _based(gold), _based(prediction)
    if want and not got:
        return prediction == want[0] or None
    return None if got is None else got == (want or (gold, 10))


# ---- formulas

#: Products whose order counts: `AB` and `BA` in one text.
_ORDERED = re.compile(r"([A-Z])([A-Z]).*\2\1")
#: The longest answer in words, in characters.
MAX_WORDED_CHARS = 200


def bare_words(text: str) -> str:
    r"""Return a text in lower case, without `\text`, dollar signs, final punctuation and lead-in; empty if it is
    long."""
    plain = TEXT_COMMANDS.sub(r"\1", re.sub(r"\$|\\[()]", "", text)) if len(text) <= MAX_WORDED_CHARS else ""
    lead_in = r"^(?:(?:it is|it's|the (?:final )?answer is|answer:|so|therefore|thus|hence),? )"
    return re.sub(lead_in, "", plain.strip(" *").rstrip(" .!*").lower())


def worded(text: str) -> str:
    r"""Return the words of an answer in lower case, without `\text`; empty if the answer is not in words."""
    plain = re.sub(r"^(?:an?|the) (?=[a-z]{4})", "", " ".join(bare_words(text).split()))
    mixed = re.search(r"[a-z]{4}|\d [ap]\.?m$", plain) and re.fullmatch(r"[a-z0-9][a-z0-9' .:,;-]{2,100}", plain)
    return plain if mixed or re.fullmatch(r"no|[a-z][a-z' -]{2,60}", plain) else ""


def same_terms(prediction: str, gold: str) -> Match:
    r"""Return how `prediction` equals `gold` in value. Both arguments are normalised terms, and one may omit its unit.
    A percent sign is a factor of 1/100. A gold between 1 and 100 without a percent sign may still mean a percentage:
    the answer `50\%` equals the golds 0.5 and 50, and `2000\%` equals only 20. Raise Undecided for too large numbers.

    >>> same_terms("0.333333", "1/3")
    'equal within 1e-06, relative: the digits written'
    """
    if squeeze(prediction) == squeeze(gold):
        return EQUAL
    if (based := same_in_base(prediction, gold)) is not None:
        return EQUAL if based else ""
    names = [_NAMED.sub("", text) for text in (prediction, gold)]
    if all(re.fullmatch("[A-Z]{2,}", name) for name in names):
        return EQUAL if names[0] == names[1] else ""
    options = _OPTION.fullmatch(prediction), _OPTION.fullmatch(_CHOICE.sub(r"\1", gold))
    words = worded(gold)
    if (options[0] and options[1] and options[0][1] == options[1][1]) or (words and words == worded(prediction)):
        return EQUAL
    (a, unit_a), (b, unit_b) = split_unit(prediction), split_unit(gold)
    further = {split_unit(rest)[1] for rest, unit in ((a, unit_a), (b, unit_b)) if unit}
    if len({unit_a, unit_b, *further} - {None}) > 1:
        return ""
    x, y = number(a), number(b)
    signed = [_FACTORS.get(unit or "", "{}").format(rest) for rest, unit in ((a, unit_a), (b, unit_b))]
    if "%" in (unit_a, unit_b) and unit_a != unit_b:
        meant = x and y and x.value == y.value and abs(y.value) > 1 and (unit_b == "%" or abs(y.value) <= 100)
        return EQUAL if meant else _equal(*signed)
    if (unit_a == "°") != (unit_b == "°") and not (x and y):
        return _equal(*signed)
    return _equal(a, b)


#: Signs of units that multiply a number, each with the formula for its product.
_FACTORS = {"%": r"({})\%", "°": r"{}^{{\circ}}"}


def _equal(prediction: str, gold: str) -> Match:
    if prose_words(prediction):
        return ""
    if prose_words(gold):
        if not worded(gold):
            raise Undecided(f"the gold is not understood: {gold}"[:200])
        return ""
    if _ORDERED.search(prediction) or _ORDERED.search(gold):
        return ""
    got, want = parsed(prediction), parsed(gold)
    if got is None or want is None:
        return ""
    if same_value(got, want):
        return EQUAL
    # inside formulas nothing may be rounded: one side must be a decimal (times i), and the other must not
    lone = [number(re.sub(r"(?<=\d) ?i$", "", text)) for text in (prediction, gold)]
    written = [n for n in lone if n is not None and n.place is not None]
    tolerance = decimal_tolerance(written[0]) if len(written) == 1 else Fraction(0)
    rounded = tolerance and near(got, want, tolerance)
    return f"equal within {float(tolerance):.0e}, relative: the digits written" if rounded else ""


def _same_relation(one: Shape, other: Shape) -> bool:
    """Return whether the sides of two relations differ by a constant factor."""
    if prose_words(other.text) and not prose_words(one.text):
        raise Undecided(f"the gold is not understood: {other.text}"[:200])
    if one.kind != "relation" or not len(one.marks) == len(other.marks) == 1:
        return False
    texts = [item.text for relation in (one, other) for item in relation.items]
    if None in map(parsed, texts):
        return False
    left, right, *rest = map(parse, texts)
    mine, theirs = (Expr("+", (a, Expr("neg", (b,)))) for a, b in ((left, right), rest))
    sign, wanted = one.marks[0], other.marks[0]
    if (factor := factor_between(mine, theirs)) is None:
        return False
    negative = factor.imag == 0 and factor.real < 0
    return (MIRROR.get(sign, sign) if negative else sign) == wanted


# ---- forms

_SEVERAL = ("list", "choice", "set")
Judgement = tuple[Literal["correct", "wrong", "ambiguous"], str]
RIGHT: Judgement = ("correct", "equal")
WRONG: Judgement = ("wrong", "not equal")


class Comparison:
    """The comparison of two answers. roundings: how decimals matched exact values. Every method may raise Undecided."""

    def __init__(self) -> None:
        self.roundings: list[str] = []

    def same(self, prediction: Shape, gold: Shape) -> bool:
        if gold.kind == "relation":
            return _same_relation(prediction, gold)
        match = same_terms(prediction.text, gold.text)
        self.roundings += [match] if match and match != EQUAL else []
        return bool(match)

    def agree(self, prediction: Shape, gold: Shape) -> bool:
        return self.compare(prediction, gold)[0] == "correct"

    def compare(self, prediction: Shape, gold: Shape) -> Judgement:
        """Return (verdict, reason) after a comparison of the prediction's form with the gold's form."""
        if (condition := prediction.condition) not in ("", gold.condition):
            some = r"[23]$|>1$|^argument.*[ZQN]"
            narrower = condition != r"\mathbb{Z}" if PERIODS.search(gold.text) else re.search(some, condition)
            if gold.condition or narrower:
                return WRONG
        if squeeze(prediction.text) == squeeze(gold.text):
            return "correct", "identical text"
        if _joined_differently(prediction, gold):
            return WRONG
        if prediction.kind == "steps":
            value = self._conclusion(prediction)
            return ("wrong", "steps that are not true together") if value is None else self.compare(value, gold)
        if is_inequality(gold) and is_inequality(prediction) and named(gold) and named(prediction) - named(gold):
            return "wrong", f"about {prediction.text}, not {', '.join(sorted(named(gold)))}"[:200]
        order = gold.kind == "relation" and len(named(gold)) == len(gold.items) == 2  # `a < b` is no range
        if not order and any(map(_is_range, (prediction, gold))) and (same := same_set(prediction, gold)) is not None:
            return RIGHT if same else WRONG
        if gold.kind in ("interval", "union"):
            return "wrong", f"a {prediction.kind} where an interval is asked for"
        if gold.kind in _SEVERAL and all(i.kind == "relation" and is_name(i.items[0].text) for i in gold.items):
            ordered = in_order_of([i.items[0] for i in gold.items], prediction)
            if ordered is not prediction:
                return self._in_order(ordered.items, gold.items)
        if prediction.kind == "relation" and gold.kind != "relation":
            first, *_, last = prediction.items
            subjects = [item.text for item in (first.items if first.kind == "tuple" else (first,))]
            known = all(not text or is_closed(split_unit(text)[0]) or names_value(text) for text in subjects)
            if not (known or self.agree(first, last)):
                return "wrong", f"an equation for {first.text}, not a value"[:200]
            return self._value(prediction, gold)
        kinds = {prediction.kind, gold.kind}
        if gold.kind in ("matrix", "tuple") and "matrix" in kinds and "scalar" not in kinds:
            flat = len(kinds) > 1  # a vector equals a tuple in any notation, unless both specify row or column
            prediction, gold = as_tuple(prediction, flat), as_tuple(gold, flat)
        if gold.kind == "relation":
            return self._relation(prediction, gold)
        return self._several(prediction, gold) if gold.kind in (*_SEVERAL, "tuple") else self._scalar(prediction, gold)

    # ---- several values

    def _in_order(self, got: Sequence[Shape], want: Sequence[Shape]) -> Judgement:
        return RIGHT if len(got) == len(want) and all(map(self.agree, got, want)) else WRONG

    def _in_any_order(self, got: Sequence[Shape], want: Sequence[Shape], multiplicity: bool) -> Judgement:
        """Match the parts of two answers in any order. Two parts of one answer count as the same part if they agree
        with the same parts of the other answer."""
        if multiplicity and len(got) != len(want):
            return WRONG
        hits = [[self.agree(g, w) for w in want] for g in got]
        found = all(map(any, hits)) and sum(map(any, zip(*hits, strict=True))) == len(want)
        return RIGHT if found and not (multiplicity and any(sum(row) != hits.count(row) for row in hits)) else WRONG

    def _several(self, prediction: Shape, gold: Shape) -> Judgement:
        """Compare a list, set or tuple with another one. In lists repetition counts, and order does not."""
        if prediction.kind == "union" and all(i.kind == "set" for i in prediction.items):
            prediction = Shape("set", prediction.text, tuple(i for some in prediction.items for i in some.items))
        if gold.kind == "set" and prediction.kind == "scalar" and len(gold.items) == 1:
            return self.compare(prediction, gold.items[0])
        ordered = gold.kind == "tuple" and {*prediction.marks} & {"or", "lor"}
        if prediction.kind not in (*_SEVERAL, "tuple") or ordered or {gold.kind, prediction.kind} == {"set", "tuple"}:
            return "wrong", f"a {prediction.kind} where a {gold.kind} is asked for"
        if gold.kind == "tuple":
            return self._in_order(in_order_of(None, prediction).items, gold.items)
        if prediction.kind == "tuple":
            return self._in_order(prediction.items, gold.items)
        return self._in_any_order(prediction.items, gold.items, "set" not in (gold.kind, prediction.kind))

    # ---- one value

    def _scalar(self, prediction: Shape, gold: Shape) -> Judgement:
        if prediction.kind in _SEVERAL and prediction.items:
            if (value := self._conclusion(prediction)) is not None:
                return self.compare(value, gold)
            first, *others = prediction.items
            if all(self.agree(other, first) for other in others):
                return self.compare(first, gold)
            return "ambiguous", "several different answers"
        return RIGHT if self.same(prediction, gold) else WRONG

    def _conclusion(self, steps: Shape) -> Shape | None:
        r"""Return the result of steps such as `3y=15, y=5`: the value in the last equation, if it satisfies them all.
        After `\Rightarrow`, several equations may be the result (`x^2=4 \Rightarrow x=\pm 2`), each of which must."""
        *before, last = equations = steps.items
        if last.kind == "list" or (last.kind == "choice" and not {*last.marks} - {"or", "lor"}):
            each = [self._conclusion(replace(steps, items=(*before, item))) for item in last.items]
            return None if None in each else last
        if {*steps.marks} & {"or", "lor"} or not all(i.kind == "relation" and {*i.marks} == {"="} for i in equations):
            return None
        if any(parsed(side.text) is None for equation in equations for side in equation.items):
            return None
        sides = [[parse(side.text) for side in equation.items] for equation in equations]
        known = {some[0]: some[-1] for some in sides if some[0].op == "name" and is_constant(some[-1])}
        if (name := sides[-1][0]) in known:
            known = {name: sides[-1][-1]}
        sides = [[with_values(side, known) for side in some] for some in sides]
        if not all(is_constant(side) for some in sides for side in some):
            return None
        true = all(same_value(*pair) for some in sides for pair in pairwise(some))
        return equations[-1].items[-1] if true else None

    def _value(self, prediction: Shape, gold: Shape) -> Judgement:
        """Compare a prediction with a gold that is one value. The prediction is a value too, or a chain of equations
        such as `x = 2 + 3 = 5`, which must all be true."""
        if prediction.kind != "relation":
            return self.compare(prediction, gold)
        items, marks = prediction.items, prediction.marks
        if not {*marks} <= {"=", r"\approx", r"\in", r"\equiv"}:
            return "wrong", "an inequality where one value is asked for"
        named = not is_closed(items[0].text)
        exact = 1 + next((i for i, m in enumerate(marks) if m == r"\approx" and i >= named), len(marks))
        if false := next((p for p in items[exact:] if not _rounds(p.text, items[exact - 1].text)), None):
            return "wrong", f"false approximation: {false.text}"[:200]
        parts = [p for p in items[:exact] if p.text]
        if any(p.kind == "scalar" and parsed(p.text) is None and not is_name(p.text) for p in parts[1:-1]):
            return "wrong", NOT_UNDERSTOOD
        if len(parts) < min(exact, 2):
            return "wrong", "incomplete equation"
        closed = [p for p in parts if is_closed(p.text)]
        for one, other in pairwise(closed):
            if not self.agree(one, other):
                return "wrong", f"false equation: {one.text} = {other.text}"[:200]
        last = parts[-1]
        is_subject = closed and not is_closed(last.text) and names_value(last.text)
        return self.compare(closed[-1] if is_subject else last, gold)

    # ---- relations

    def _relation(self, prediction: Shape, gold: Shape) -> Judgement:
        """Compare a prediction with a gold that is an equation, an inequality, or a value with its name."""
        first, last = gold.items[0], gold.items[-1]
        if first.kind == "tuple" == last.kind:
            return self.compare(in_order_of(first.items, prediction), last)
        if set(gold.marks) <= {"=", r"\equiv"} and (is_name(first.text) or is_label(first.text)):
            return self._named(prediction, gold)
        if gold.marks == (r"\in",):
            return self.compare(prediction, last)
        if r"\approx" in gold.marks:  # accepts the exact value, and the rounded value as the gold writes it
            tried = [self._value(prediction, item) for item in gold.items if is_closed(split_unit(item.text)[0])]
            return next((found for found in tried if found[0] == "correct"), (*tried, WRONG)[0])
        if {*gold.marks} == {"="} and all(is_closed(item.text) for item in gold.items):
            return self._value(prediction, last)
        flipped = tuple(MIRROR.get(m, m) for m in prediction.marks[::-1]) == gold.marks
        items = prediction.items[::-1] if flipped else prediction.items
        if (flipped or prediction.marks == gold.marks) and self._in_order(items, gold.items) == RIGHT:
            return RIGHT
        return RIGHT if self.same(prediction, gold) else WRONG

    def _named(self, prediction: Shape, gold: Shape) -> Judgement:
        """Compare with a gold such as `x = 1` or `|AB| = 1`. Accept the bare value, or the value under the gold's name
        (`x`); reject the value under another name."""
        name, value = gold.items[0].text, gold.items[-1]
        if prediction.kind != "relation":
            return self.compare(prediction, value)
        left, last = prediction.items[0].text, prediction.items[-1]
        constant = prediction.marks[0] == r"\equiv" and squeeze(name).startswith(f"{squeeze(left)}(")
        if bare_label(left) == bare_label(name) or constant:
            return self._value(prediction, value)
        if squeeze(last.text) == squeeze(name) and {*prediction.marks} <= {"=", r"\equiv"}:
            return self.compare(prediction.items[0], value)
        product = any(re.fullmatch("[a-z]{2,3}", one.strip()) for one in (name, left))  # `xy = 2` is one
        equation = product or not (is_name(left) or ("(" in left and is_label(left)))
        if equation and self.same(prediction, gold):
            return RIGHT
        return "wrong", f"names {left}, not {name}"[:200]


def _rounds(rounded: str, exact: str) -> bool:
    """Return whether a number is another one, rounded or truncated."""
    written = number(rounded)
    try:
        (found,), _ = next(values((parse(split_unit(exact)[0]),)))
    except (Unreadable, StopIteration):
        return False
    if written is None or isinstance(found, mp.matrix):
        return False
    error = real(abs(found)) - real(abs(written.value))
    return bool(-0.5 <= error / real(written.place or Fraction(1)) < 1)


def _joined_differently(prediction: Shape, gold: Shape) -> bool:
    """Return whether one answer joins its values by `and` and the other joins them by `or`. Return False if the values
    are those of one variable, because both words then make a list."""
    some = [found for found in (prediction, gold) if found.kind == "choice"]
    symbols = {mark for found in some for mark in found.marks if mark[0] == "l"}
    listed = all(map(_lists_values, some)) and (not symbols or (symbols == {"lor"} and len(some) == 1))
    if not some or listed:
        return False
    joins = [{mark[-2:] == "or" for mark in found.marks or ("and",)} for found in (prediction, gold)]
    other = gold if prediction.kind == "choice" else prediction
    system = other.kind == "relation" and other.items[0].kind == "tuple"
    if max(map(len, joins)) > 1:  # `and` beside `or` without brackets
        return True
    return joins[0] != joins[1] and (len(some) == 2 or other.kind in ("tuple", "list") or system)


def _lists_values(found: Shape) -> bool:
    """Return whether all parts are values, or all are equations for the same name."""
    names = {item.items[0].text if item.kind == "relation" else "" for item in found.items}
    return len(names) == 1 and all(i.kind != "relation" or set(i.marks) <= {"="} for i in found.items)


# ---- sets of real numbers

#: Number of values that are tried for each letter in the ends of intervals.
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


def _is_range(found: Shape) -> bool:
    """Return whether an answer is an interval, a union, an inequality, or has inequalities as parts."""
    return found.kind in ("interval", "union") or any(map(is_inequality, (found, *found.items)))


class _NoSet(Exception):
    """An answer is not a set of real numbers."""


def _holds(found: Shape, x: Any, value: Callable[[str], Any]) -> bool:
    """Return whether a set contains the number x. value: gives the number of an end. Raise _NoSet for others."""
    items, marks, texts = found.items, found.marks, [item.text for item in found.items]

    def end(text: str) -> Any:
        return _INFINITE.get(text.replace(" ", "")) or value(text)

    if found.kind == "interval" or (found.kind == "tuple" and len(items) == 2 and marks == ("(", ")")):
        if any(mark in "[]" and text.replace(" ", "") in _INFINITE for text, mark in zip(texts, marks, strict=True)):
            raise _NoSet
        low, high = map(end, texts)
        return (low < x or (low == x and marks[0] == "[")) and (x < high or (x == high and marks[1] == "]"))
    if found.kind == "set":
        return x in [value(text) for text in texts]
    if without := _WITHOUT.fullmatch(found.text):  # `A \cup B \setminus \{c\}` removes c from A and from B
        points = [value(text) for text in without["points"].split(",")]
        return _holds(shape(without["whole"]), x, value) and x not in points
    if found.kind in ("union", "choice", "list"):
        return _holds_several(found, x, value)
    if marks == (r"\in",):
        return _holds(items[1], x, value)
    absolute = [_ABSOLUTE.fullmatch(text) for text in texts]
    subjects = [bool(bars) or is_name(text) for bars, text in zip(absolute, texts, strict=True)]
    single = len(items) == 2 and any(subjects) and (is_inequality(found) or is_name(texts[0]))
    between = len(items) == 3 and is_inequality(found) and subjects[1]
    if found.kind != "relation" or not (single or between) or not {*marks} <= {*_COMPARE}:
        raise _NoSet
    place = 1 if between else subjects.index(True)
    numbers = [(abs(x) if absolute[i] else x) if i == place else end(text) for i, text in enumerate(texts)]
    if absolute[place]:
        value(f"-({texts[1 - place]})")
    return all(_COMPARE[sign](*pair) for sign, pair in zip(marks, pairwise(numbers), strict=True))


def _holds_several(found: Shape, x: Any, value: Callable[[str], Any]) -> bool:
    """Return whether a union, or several conditions on one name, contain the number x; see `_holds`."""
    items, listed = found.items, found.kind == "list"
    names = [named(item) for item in items if item.kind == "relation"]
    if (names and not set.intersection(*names)) or (
        listed and not all(is_inequality(i) or r"\ne" in i.marks for i in items[:2])
    ):
        raise _NoSet
    unlike = listed and r"\ne" in items[1].marks
    excluded = [item for item in items[2:] if unlike and item.kind == "scalar"]  # `x \ne 1, 2`
    parts = [x != value(item.text) if item in excluded else _holds(item, x, value) for item in items]
    return (all if listed or {*found.marks} & {"and", "land"} else any)(parts)


def same_set(one: Shape, other: Shape) -> bool | None:
    """Return whether two sets of real numbers are equal. Return False if an end is not a real number, and None if an
    answer is not a set of real numbers."""
    ends: dict[str, int] = {}
    try:
        for found in (one, other):
            _holds(found, 0, lambda text: ends.setdefault(text, 0))
        tried = list(values((*map(parse, ends), constant(0))))
    except _NoSet:
        return None
    except (Unreadable, Undecided):
        return False
    if not tried or any(isinstance(v, mp.mpc | mp.matrix) for found, _ in tried for v in found):
        return False
    with mp.workdps(MAX_DIGITS):
        for found, slack in tried[:TRIED]:
            places: list[Any] = []
            known = {}
            for value, end in sorted(zip(map(real, found), (*ends, ""), strict=True)):
                places += [] if places and value - places[-1] <= real(slack) else [value]
                known[end] = places[-1]
            numbers = [places[0] - 1, *places, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 1]
            if any(_holds(one, x, known.__getitem__) != _holds(other, x, known.__getitem__) for x in numbers):
                return False
    return True

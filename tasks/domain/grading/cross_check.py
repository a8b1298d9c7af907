r"""Cross check, independent of the grader: its own reading of LaTeX, its own arithmetic, no algebra system.

It evaluates both texts in complex floating point at fixed pseudo-random values of their variables and says `same`,
`different`, or `unknown` where it cannot tell. Nothing here is shared with the grader, so that a mistake of
either shows as a dispute. It cannot hang: numbers that overflow, long texts and deep nesting are `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from tasks.domain.grading.numeric_evaluation import Reader, Unclear

Agreement = Literal["same", "different", "unknown"]
MAX_CHARS, POINTS = 400, 3
CLOSE, CLOSE_TO_DECIMAL = 1e-11, 1e-6
#: Words, units, powers of ten with an e, three dots: not a formula.
_NOT_FORMULA = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{2,}|\d[eE][-+\d]|\.\.|\\(?:text|mathrm|mbox|overline|dots|ldots|pm|mp|infty)"
)
_IGNORED = re.compile(
    r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|,|;|:|!|quad|qquad)(?![A-Za-z])\s*|\$|\\ |~|\s|\\[()\[\]]"
)
_PLAIN = {
    "−": "-",
    "×": "*",
    "·": "*",
    "⋅": "*",
    "÷": "/",
    "π": r"\pi ",
    "√": r"\sqrt ",
    "°": r"^\circ",
    "²": "^2",
    "³": "^3",
}


def cross_check(answer: str, gold: str) -> Agreement:
    r"""Is the answer the gold?

    >>> cross_check(r"\frac{n^2+n}{2}", "n(n+1)/2"), cross_check("7", "8")
    ('same', 'different')
    >>> cross_check("even", "odd"), cross_check("3, 1", "1,3")
    ('unknown', 'same')
    """
    if max(len(answer), len(gold)) > MAX_CHARS:
        return "unknown"
    if any(_NOT_FORMULA.search(text) for text in (answer, gold)) or _units(answer) != _units(gold):
        return "unknown"
    try:
        if _name(answer) and _name(gold) and _name(answer) != _name(gold):
            return "unknown"
        got, got_form = _values(answer)
        want, want_form = _values(gold)
    except (Unclear, OverflowError, ZeroDivisionError, ValueError, IndexError):
        return "unknown"
    if got_form != want_form and "()" in (got_form, want_form) and len(want) > 1 and len(got) > 1:
        return "unknown"
    if len(got) != len(want):
        return "different"
    rounded = ("." in answer) != ("." in gold) and not any(re.fullmatch(r"\s*-?\d+\s*", t) for t in (answer, gold))
    near = CLOSE_TO_DECIMAL if rounded else CLOSE
    if got_form == "()" == want_form:
        return "same" if all(_close(g, w, near) for g, w in zip(got, want, strict=True)) else "different"
    left = list(want)
    for value in got:
        hit = next((w for w in left if _close(value, w, near)), None)
        if hit is None:
            return "different"
        left.remove(hit)
    return "same"


def _units(text: str) -> tuple[bool, bool]:
    return "%" in text, "circ" in text or "°" in text


def _name(text: str) -> str:
    return re.sub(r"[\s$]", "", text.partition("=")[0]) if "=" in text else ""


def _close(one: Sequence[complex], other: Sequence[complex], near: float) -> bool:
    return all(abs(a - b) <= near * abs(b) + 1e-12 for a, b in zip(one, other, strict=True))


def _values(text: str) -> tuple[list[tuple[complex, ...]], str]:
    """(each value at every point, the form: `()` for one parenthesised tuple, else empty)."""
    for char, plain in _PLAIN.items():
        text = text.replace(char, plain)
    text = _IGNORED.sub(lambda m: " " if m[0].isspace() else "", text.strip()).strip().rstrip(".")
    form = ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        text = text[2:-2]
    elif text[:1] == "(" and text[-1:] == ")" and "," in text and text.count("(") == 1:
        text, form = text[1:-1], "()"
    parts = _split(text)
    return [tuple(Reader(_right_side(p), point).value() for point in range(POINTS)) for p in parts], form


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        thousands = char == "," and re.match(r"\d{3}(?!\d)", text[i + 1 :]) and re.search(r"(?<!\d)\d{1,3}$", current)
        if char == "," and depth == 0 and not thousands:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def _right_side(text: str) -> str:
    """What an assignment assigns. A chain of more, or an equation, is for somebody else to judge."""
    left, equals, right = text.partition("=")
    if not equals:
        return text
    if "=" in right or not re.fullmatch(r"\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*", left):
        raise Unclear
    return right

r"""Equality of two terms: text and exact arithmetic first, algebra where they cannot decide.

Two exact values are equal or they are not. Tolerance is for a decimal against an exact value that has no decimal form:
the last digit written may be rounded or cut off, and at least `LEAST_DIGITS` of them must be written and right. The
reason of a verdict says how far that went. Two numbers written out match only if equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tasks.domain.grading.quantities import Number, compound_quantity, number, same_in_base

VerdictName = Literal["correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """answer: as extracted from the region; canonical: the normal form that was compared; null if there is none."""

    verdict: VerdictName
    reason: str
    answer: str | None
    canonical: str | None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


LEAST_DIGITS = 6
#: What computing in double precision leaves uncertain, relative: digits beyond are noise, not a claim.
MACHINE_TOLERANCE = Fraction(1, 10**13)
EQUAL = "equal"
#: How two terms are the same (`equal`, or within what); empty if they are not.
Match = str
Same = Callable[[str, str], bool]
Matcher = Callable[[str, str], Match]


GREEK = (
    r"\\(?:[A-Z][a-z]+|alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|kappa|lambda|mu|nu|xi|rho|sigma|tau"
    r"|(?:var)?phi|chi|psi|omega|ell)(?![A-Za-z])"
)


class NeedsSymbolic(Exception):
    """Exact comparison of text and numbers cannot decide; a worker must."""


class Undecided(Exception):
    """Algebra cannot decide either: no verdict, with the reason."""


def squeeze(text: str) -> str:
    r"""Text without the spaces that mean nothing.

    >>> squeeze(r"2 \pi r"), squeeze("2 n"), squeeze("1 1/2")
    ('2\\pi r', '2n', '1 1/2')
    """
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    return re.sub(r"(?<![A-Za-z\d]) | (?![A-Za-z\d])|(?<=\d) (?=[A-Za-z])|(?<=[A-Za-z]) (?=\d)", "", text)


def exact_same(prediction: str, gold: str) -> Match:
    """Equality of two terms by text and exact arithmetic. Errors: NeedsSymbolic if that cannot decide."""
    if squeeze(prediction) == squeeze(gold):
        return EQUAL
    if (option := _option(_CHOICE.sub(r"\1", gold))) is not None and option == _option(prediction):
        return EQUAL
    if (name := _name(gold)) is not None and (other := _name(prediction)) is not None:
        return EQUAL if name == other else ""
    if (measured := compound_quantity(gold)) is not None or compound_quantity(prediction) is not None:
        return EQUAL if measured == compound_quantity(prediction) else ""
    if (based := same_in_base(prediction, gold)) is not None:
        return EQUAL if based else ""
    a, b = number(prediction), number(gold)
    if a is None or b is None:
        raise NeedsSymbolic
    return same_numbers(a, b)


#: An option as a gold may write it: its letter answers it.
_CHOICE = re.compile(r"^(\([A-H]\)) [A-Z][A-Za-z ]*$")


def _option(text: str) -> str | None:
    """The letter of a multiple-choice answer, or null."""
    match = re.fullmatch(r"(?:\\\(|\()?(?:\\(?:text|mathrm|textbf) ?\{)? ?\(?([A-H])\)? ?\}?\)?", text)
    return match[1] if match else None


_NAMED = re.compile(r"(\\(?:angle|triangle|overline|text|mathrm|vec|overrightarrow)|[{} ])")


def _name(text: str) -> str | None:
    r"""A bare run of capitals: a word, a triangle, tosses of a coin, in which order counts. Null for anything else.

    >>> _name(r"\text{HTT}"), _name(r"\angle ABC"), _name("2AB"), _name("A")
    ('HTT', 'ABC', None, None)
    """
    bare = _NAMED.sub("", text)
    return bare if re.fullmatch("[A-Z]{2,}", bare) else None


def symbolic_same(prediction: str, gold: str) -> Match:
    """Equality of two terms; asks algebra where arithmetic cannot decide. May take for ever."""
    try:
        return exact_same(prediction, gold)
    except NeedsSymbolic:
        from tasks.domain.grading.symbolic import equivalent

        return equivalent(prediction, gold)


def same_numbers(prediction: Number, gold: Number) -> Match:
    r"""Equal in value, where one side may have left out its unit.

    A percent sign is a factor of 1/100. A gold may mean percent and not say so if it is above 1 and no more than 100:
    `50\%` answers 50 and 0.5, `0.5\%` does not answer 0.5, and `2000\%` answers 20 alone.

    >>> same_numbers(Number(Fraction(1, 3)), Number(Fraction(333333, 10**6), place=Fraction(1, 10**6)))
    'equal within 1e-06, relative: the digits written'
    """
    a, b = prediction.value, gold.value
    units = {prediction.unit, gold.unit}
    if "%" in units and len(units) == 2:
        if units != {"%", None}:
            return ""
        scaled = (a / 100 == b) if prediction.unit == "%" else (a == b / 100)
        meant = abs(b) > 1 and (gold.unit == "%" or abs(b) <= 100)
        return EQUAL if scaled or (a == b and meant) else ""
    if len(units) == 2 and None not in units:
        return ""
    if a == b:
        return EQUAL
    written, exact = (prediction, b) if prediction.decimal else (gold, a)
    if prediction.decimal == gold.decimal or terminates(exact):
        return ""
    tolerance = decimal_tolerance(written)
    return within(tolerance) if abs(written.value - exact) <= tolerance * abs(exact) else ""


def decimal_tolerance(written: Number) -> Fraction:
    """How far a decimal may be, relative, from the exact value that it stands for: one in its last digit.

    >>> [float(decimal_tolerance(Number(Fraction("2.5"), Fraction(1, 10**n)))) for n in (4, 5, 8)]
    [0.0, 1e-06, 4e-09]
    """
    if written.place is None or abs(written.value) < written.place * 10 ** (LEAST_DIGITS - 1):
        return Fraction(0)
    return max(min(written.place / abs(written.value), Fraction(1, 10**LEAST_DIGITS)), MACHINE_TOLERANCE)


def within(tolerance: Fraction) -> Match:
    return f"equal within {float(tolerance):.0e}, relative: the digits written"


def terminates(value: Fraction) -> bool:
    """Has the value a decimal form that ends?"""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1

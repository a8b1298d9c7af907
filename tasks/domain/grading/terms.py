r"""Equality of two terms: text and exact arithmetic first, then algebra.

Two exact values are compared without tolerance. Tolerance applies only to a decimal compared with an exact value that
has no finite decimal form: the last digit may be rounded or truncated, and at least `LEAST_DIGITS` digits must be given
and correct. The reason of a verdict states the tolerance. Two explicit numbers match only if equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tasks.domain.grading.formulas import Expr, Unreadable, parse
from tasks.domain.grading.latex_normalisation import TEXT_COMMANDS, prose_words, split
from tasks.domain.grading.quantities import Number, number, same_in_base, split_unit
from tasks.domain.grading.values import Undecided, factor_between, near, same_solutions, same_value

VerdictName = Literal["correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """answer: as extracted from the region; canonical: the normal form that was compared; None if there is none."""

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


def squeeze(text: str) -> str:
    """Text without insignificant spaces."""
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    return re.sub(r"(?<![A-Za-z\d]) | (?![A-Za-z\d])|(?<=\d) (?=[A-Za-z])|(?<=[A-Za-z]) (?=\d)", "", text)


#: An option as a gold may write it: its letter answers it.
_CHOICE = re.compile(r"^(\([A-H]\)) [A-Z][A-Za-z ]*$")


def _option(text: str) -> str | None:
    """The letter of a multiple-choice answer, or None."""
    match = re.fullmatch(r"(?:\\\(|[(\[])?(?:\\(?:text|mathrm|textbf) ?\{)? ?\(?([A-H])\)? ?\}?[)\]]?", text)
    return match[1] if match else None


_NAMED = re.compile(r"(\\(?:angle|triangle|overline|text|mathrm|vec|overrightarrow)|[{} ])")


def _name(text: str) -> str | None:
    """A run of capitals in which order counts: a word, a triangle, coin tosses. None for anything else."""
    bare = _NAMED.sub("", text)
    return bare if re.fullmatch("[A-Z]{2,}", bare) else None


def decimal_tolerance(written: Number) -> Fraction:
    """Return the largest relative deviation of a decimal from its exact value: one unit in its last digit."""
    if written.place is None or abs(written.value) < written.place * 10 ** (LEAST_DIGITS - 1):
        return Fraction(0)
    return max(min(written.place / abs(written.value), Fraction(1, 10**LEAST_DIGITS)), MACHINE_TOLERANCE)


# ---- formulas

#: Products in which order counts: `AB` beside `BA`.
_ORDERED = re.compile(r"([A-Z])([A-Z]).*\2\1")
_RELATION = re.compile(r"\\(?:le|ge|ne|equiv)(?![A-Za-z])|[<>]=?|==?|!=(?=.)")
#: Relations as they are compared.
CANONICAL = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "==": "=", r"\simeq": r"\approx", r"\sim": r"\approx"}
#: Inequalities read from right to left.
MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


#: An answer in words is no longer.
MAX_WORDED_CHARS = 200


def bare_words(text: str) -> str:
    r"""Return a text in lower case, without `\text`, dollar signs, final punctuation and lead-in; empty if the text is
    long."""
    plain = TEXT_COMMANDS.sub(r"\1", re.sub(r"\$|\\[()]", "", text)) if len(text) <= MAX_WORDED_CHARS else ""
    lead_in = r"^(?:(?:it is|it's|the (?:final )?answer is|answer:|so|therefore|thus|hence),? )"
    return re.sub(lead_in, "", plain.strip(" .!*").lower())


def worded(text: str) -> str:
    r"""An answer in words, ignoring case and `\text`; empty for anything else."""
    plain = re.sub(r"^(?:an?|the) (?=[a-z]{4})", "", bare_words(text))
    mixed = re.search(r"[a-z]{4}", plain) and re.fullmatch(r"[a-z0-9][a-z0-9' ,;-]{2,100}", plain)
    return plain if mixed or re.fullmatch(r"[a-z][a-z' -]{2,60}", plain) else ""


def same_terms(prediction: str, gold: str) -> Match:
    r"""Return how `prediction` equals `gold` in value. Both arguments are normalised terms; one may omit its unit. A
    percent sign is a factor of 1/100. A gold between 1 and 100 may be an implicit percentage: `50\%` matches 50 and
    0.5, and `2000\%` matches only 20. Raise Undecided, with the reason, if the numbers are too large.

    >>> same_terms("0.333333", "1/3")
    'equal within 1e-06, relative: the digits written'
    """
    if squeeze(prediction) == squeeze(gold):
        return EQUAL
    if (based := same_in_base(prediction, gold)) is not None:
        return EQUAL if based else ""
    if (name := _name(gold)) is not None and (other := _name(prediction)) is not None:
        return EQUAL if name == other else ""
    option, words = _option(_CHOICE.sub(r"\1", gold)), worded(gold)
    if (option and option == _option(prediction)) or (words and words == worded(prediction)):
        return EQUAL
    (a, unit_a), (b, unit_b) = split_unit(prediction), split_unit(gold)
    further = {split_unit(rest)[1] for rest, unit in ((a, unit_a), (b, unit_b)) if unit}
    if len({unit_a, unit_b, *further} - {None}) > 1:
        return ""
    x, y = number(a), number(b)
    if "%" in (unit_a, unit_b) and unit_a != unit_b:
        meant = x and y and x.value == y.value and abs(y.value) > 1 and (unit_b == "%" or abs(y.value) <= 100)
        return (
            EQUAL
            if meant
            else _equal(*((rf"\frac{{{a}}}{{100}}", b) if unit_a == "%" else (a, rf"\frac{{{b}}}{{100}}")))
        )
    if (unit_a == "°") != (unit_b == "°") and not (x and y):
        turned = (rf"({a})\cdot\frac{{\pi}}{{180}}", b) if unit_a == "°" else (a, rf"({b})\cdot\frac{{\pi}}{{180}}")
        return _equal(*turned) or _equal(a, b) or _equal(prediction, gold)
    return _equal(a, b)


def _equal(prediction: str, gold: str) -> Match:
    if squeeze(prediction) == squeeze(gold):
        return EQUAL
    if prose_words(prediction):
        return ""
    if prose_words(gold):
        if not worded(gold):
            raise Undecided(f"the gold is not understood: {gold}"[:200])
        return ""
    if ":" in prediction + gold:
        parts, others = prediction.split(":"), gold.split(":")
        return EQUAL if len(parts) == len(others) and all(map(_equal, parts, others)) else ""
    if _ORDERED.search(prediction) or _ORDERED.search(gold):
        return ""
    try:
        one, other = split(prediction, _RELATION), split(gold, _RELATION)
        if one[1] or other[1]:
            return EQUAL if len(one[1]) == len(other[1]) == 1 and _same_relation(one, other) else ""
        got, want = parse(prediction), parse(gold)
    except Unreadable:
        return ""
    if same_value(got, want):
        return EQUAL
    # no rounding inside formulas: one side is a decimal (times i), the other is none
    lone = [number(re.sub(r"(?<=\d) ?i$", "", text)) for text in (prediction, gold)]
    written = [n for n in lone if n is not None and n.decimal]
    tolerance = decimal_tolerance(written[0]) if len(written) == 1 else Fraction(0)
    rounded = tolerance and near(got, want, tolerance)
    return f"equal within {float(tolerance):.0e}, relative: the digits written" if rounded else ""


def _same_relation(one: tuple[list[str], list[str]], other: tuple[list[str], list[str]]) -> bool:
    """Return whether two relations are equivalent: their sides differ by a constant factor, or their equations have the
    same solutions."""
    mine, theirs = (_difference(*sides) for sides, _ in (one, other))
    sign, wanted = (CANONICAL.get(signs[0], signs[0]) for _, signs in (one, other))
    factor = factor_between(mine, theirs)
    if factor is None:
        return sign == wanted == "=" and same_solutions(mine, theirs)
    negative = factor.imag == 0 and factor.real < 0
    return (MIRROR.get(sign, sign) if negative else sign) == wanted


def _difference(left: str, right: str) -> Expr:
    return Expr("+", (parse(left), Expr("neg", (parse(right),))))

"""Numbers as they are written: exact values, whether a point was written, their unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.domain.grading.latex_normalisation import matching
from tasks.domain.grading.units import MAX_UNIT_CHARS, split_unit

MAX_NUMBER_DIGITS = 2_000


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as it was written.

    value: without unit; place: what one in the last digit is worth, if a point was written; unit: `%`, `°`, a word.
    """

    value: Fraction
    place: Fraction | None = None
    unit: str | None = None

    @property
    def decimal(self) -> bool:
        return self.place is not None


_INT = r"\d+|[1-9]\d{0,2}(?:,\d{3})+"
_PLAIN = re.compile(rf"(?P<int>{_INT})?(?P<point>\.\d*)?(?:[eE](?P<exp>[+-]?\d{{1,3}}))?")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d])")
_FRACTION = re.compile(r"(?P<whole>\d+ ?)?\\frac ?\{ ?(?P<top>[+-]? ?\d+) ?\} ?\{ ?(?P<bottom>[+-]? ?\d+) ?\}")
_SLASH = re.compile(r"(?:(?P<whole>\d+) )?(?P<top>\d+) ?/ ?(?P<bottom>[+-]?\d+)")
_SCIENTIFIC = re.compile(
    r"(?P<mantissa>\d+(?:\.\d+)?) ?(?:\\times|\\cdot|\*|x) ?10 ?\^ ?(?:\{ ?(?P<e1>[+-]?\d{1,4}) ?\}"
    r"|(?P<e2>[+-]?\d{1,4}))"
)
_REPEATING = re.compile(
    r"(?P<head>\d*\.\d*?)(?:\\(?:overline|bar|dot) ?\{? ?(?P<period>\d+) ?\}?"
    r"|(?P<digit>\d)(?P=digit){2,} ?(?:\.{2,}|\\l?dots|\\cdots))"
)
_SIGN = re.compile(r"^([+-]) ?")


def number(text: str) -> Number | None:
    r"""An integer, fraction, decimal, mixed number or power of ten, with an optional unit; null for anything else.

    >>> number("1,234").value, number(r"-3\frac{1}{2}").value, number("0.50").value, number(r"62.5\%").unit
    (Fraction(1234, 1), Fraction(-7, 2), Fraction(1, 2), '%')
    """
    if len(text) > MAX_UNIT_CHARS and not (len(text) <= MAX_NUMBER_DIGITS and re.fullmatch(r"[-+\d.,]+", text)):
        return None
    if not any(c.isdigit() for c in text):
        return None
    text, unit = split_unit(text.strip())
    bare = _unwrap(text)
    sign = 1
    while match := _SIGN.match(bare):
        sign, bare = (-sign if match[1] == "-" else sign), _unwrap(bare[match.end() :])
    found = _magnitude(bare)
    return None if found is None else Number(sign * found[0], found[1], unit)


def _unwrap(text: str) -> str:
    while text and text[0] in "({" and "," not in text and matching(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _magnitude(text: str) -> tuple[Fraction, Fraction | None] | None:
    """(value, place) of a number without sign and unit."""
    if match := _REPEATING.fullmatch(text):
        period, decimals = match["period"] or match["digit"], len(match["head"].split(".")[1])
        tail = Fraction(int(period), 10 ** len(period) - 1) / 10**decimals
        return Fraction(match["head"].rstrip(".") or "0") + tail, None
    if match := re.fullmatch(r"(\d+) and (\d+) ?/ ?(\d+)", text):
        return (Fraction(int(match[2]), int(match[3])) + int(match[1]), None) if int(match[3]) else None
    if match := _PLAIN.fullmatch(_SPACED_THOUSANDS.sub(lambda m: m[0].replace(" ", ""), text)):
        if match["int"] is None and match["point"] in (None, "."):
            return None
        digits = (match["int"] or "0").replace(",", "") + (match["point"] or "").rstrip(".")
        return _scaled(digits, int(match["exp"] or 0))
    if match := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        top, bottom = int(match["top"].replace(" ", "")), int(match["bottom"].replace(" ", ""))
        if bottom == 0 or (match["whole"] and (top < 0 or bottom < 0)):
            return None
        return Fraction(top, bottom) + int(match["whole"] or 0), None
    if match := _SCIENTIFIC.fullmatch(text):
        return _scaled(match["mantissa"], int(match["e1"] or match["e2"]))
    return None


def _scaled(digits: str, exponent: int) -> tuple[Fraction, Fraction | None]:
    """Digits, with or without a point, times a power of ten."""
    scale, decimals = Fraction(10) ** exponent, digits.partition(".")[2]
    return Fraction(digits) * scale, (scale / 10 ** len(decimals) if decimals else None)

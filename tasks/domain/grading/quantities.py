"""Numbers as they are written: exact values, whether a point was written, units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.domain.grading.latex_normalisation import matching

MAX_NUMBER_DIGITS = 2_000
#: Longer texts hold no number with a unit; patterns that look for one are kept away from them.
MAX_UNIT_CHARS = 200


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


_UNITS = {
    "degree": "°",
    "degrees": "°",
    "deg": "°",
    "percent": "%",
    "percentage": "%",
    "pct": "%",
    "dollar": "$",
    "dollars": "$",
    "usd": "$",
    "cent": "cent",
    "cents": "cent",
    "cm": "cm",
    "centimeter": "cm",
    "centimeters": "cm",
    "centimetres": "cm",
    "mm": "mm",
    "millimeters": "mm",
    "millimetres": "mm",
    "km": "km",
    "kilometers": "km",
    "kilometres": "km",
    "kilometer": "km",
    "meter": "m",
    "meters": "m",
    "metre": "m",
    "metres": "m",
    "m": "m",
    "inch": "in",
    "inches": "in",
    "in": "in",
    "ft": "ft",
    "foot": "ft",
    "feet": "ft",
    "yard": "yd",
    "yards": "yd",
    "mile": "mi",
    "miles": "mi",
    "hour": "h",
    "hours": "h",
    "hr": "h",
    "hrs": "h",
    "minute": "min",
    "minutes": "min",
    "min": "min",
    "mins": "min",
    "second": "s",
    "seconds": "s",
    "sec": "s",
    "day": "day",
    "days": "day",
    "week": "week",
    "weeks": "week",
    "month": "month",
    "months": "month",
    "year": "year",
    "years": "year",
    "kg": "kg",
    "g": "g",
    "gram": "g",
    "grams": "g",
    "kilograms": "kg",
    "lb": "lb",
    "lbs": "lb",
    "pounds": "lb",
    "mph": "mph",
    "rad": "rad",
    "radian": "rad",
    "radians": "rad",
    "unit": "",
    "units": "",
    "square": "",
    "cubic": "",
    "sq": "",
}
_TEXT_UNIT = re.compile(
    r"^(?P<number>.+?) ?\\(?:text|mathrm|textrm|textbf|mbox|operatorname"
    r"|hbox) ?\{(?P<word>[^{}]*)\}(?P<power> ?\^ ?\{?[23]\}?)?$",
    re.S,
)
_WORD_UNIT = re.compile(
    r"^(?P<number>.*?[\d})])(?: ?(?P<glued>cm|mm|km|kg|ft|lbs?|mph)"
    r"| (?P<word>[A-Za-z][A-Za-z. ]*[A-Za-z]))(?P<power> ?\^ ?\{?[23]\}?)?$",
    re.S,
)
CHANGES_VALUE = re.compile(
    r"\b(?:squared|cubed|factorial|times|plus|minus|over|divided|root|half|third|quarter|hundred|thousand|million"
    r"|billion"
    r"|trillion|dozen|mod|modulo|power|choose|base|twice|thrice|double|triple)\b",
    re.I,
)
_CONNECTS = re.compile(r"\b(?:not|or|and|to|between|if|for|when|where|at|least|most|more|less|than|but)\b", re.I)


_POWERS = ((re.compile(r"\b(?:square|sq|squared)\b", re.I), "2"), (re.compile(r"\b(?:cubic|cubed)\b", re.I), "3"))


def split_unit(text: str) -> tuple[str, str | None]:
    r"""(what is left, unit or null). A bare single letter is a variable, never a unit: `6m` is 6·m.

    >>> split_unit(r"6\text{ m}"), split_unit("6m"), split_unit("45^{\\circ}"), split_unit(r"\$5")
    (('6', 'm'), ('6m', None), ('45', '°'), ('5', '$'))
    """
    text = text.strip()
    if len(text) > MAX_UNIT_CHARS:
        return text, None
    if text.startswith((r"\$", "$")):
        return text.lstrip("\\$ "), "$"
    if speed := re.match(r"(.*\d) ?((?:m|km|mi|ft|cm)/(?:s|h|hr|min))(?:\^\{?2\}?)?$", text):
        return speed[1], speed[2]
    for suffix, unit in ((r"\%", "%"), ("%", "%"), (r"^{\circ}", "°"), (r"\$", "$")):
        if text.endswith(suffix):
            return text[: -len(suffix)].rstrip(), unit
    match = _TEXT_UNIT.match(text) or _WORD_UNIT.match(text)
    if match is None:
        return text, None
    groups = match.groupdict()
    word = (groups.get("word") or groups.get("glued") or "").strip()
    first, _, rest = word.partition(" ")
    powered = first.lower() in _UNITS and rest.lower() in ("squared", "cubed")
    if (
        not word
        or (CHANGES_VALUE.search(word) and not powered)
        or _CONNECTS.search(word)
        or not re.search(r"[A-Za-z]", word)
    ):
        return text, None
    known = [_UNITS.get(w.lower().rstrip("."), "?") for w in re.findall(r"[A-Za-z.]+", word)]
    unit = "".join(k for k in known if k) if "?" not in known else "?"
    power = (groups.get("power") or "").strip(" ^{}") or next((p for w, p in _POWERS if w.search(word)), "")
    return match["number"].strip(), (unit + power if unit else "") or "?"

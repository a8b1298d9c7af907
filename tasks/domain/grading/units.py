"""Units as they are written: `20\\text{ miles per hour}`, `6 cm`, `\\$5`; and words that are none."""

from __future__ import annotations

import re

from tasks.domain.grading.number_words import PARTS, SCALES, number_in_words

#: Longer texts hold no number with a unit; patterns that look for one are kept away from them.
MAX_UNIT_CHARS = 200
_PREFIXES = {"": "", "milli": "m", "centi": "c", "deci": "d", "kilo": "k", "micro": "u", "nano": "n", "mega": "M"}
_PREFIXED = {"meter": "m", "metre": "m", "gram": "g", "second": "s", "liter": "L", "litre": "L", "watt": "W"}
#: Other names of units, singular, by their sign.
_NAMES = {
    "°": "degree deg",
    "%": "percent percentage pct",
    "$": "dollar usd",
    "euro": "euro eur",
    "cent": "cent",
    "in": "inch inches in",
    "ft": "foot feet ft",
    "yd": "yard yd",
    "mi": "mile mi",
    "h": "hour hr h",
    "min": "minute min",
    "s": "sec",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year yr",
    "lb": "pound lb",
    "oz": "ounce oz",
    "rad": "radian rad",
    "L": "l",
    "": "unit square cubic sq",
}
_UNITS = {
    **{f"{prefix}{name}": f"{sign}{unit}" for prefix, sign in _PREFIXES.items() for name, unit in _PREFIXED.items()},
    **{sign: sign for sign in ("m", "cm", "dm", "mm", "km", "nm", "g", "kg", "mg", "s", "ms", "L", "mL")},
    "ml": "mL",
    "mph": "mi/h",
    "kph": "km/h",
    **{name: sign for sign, names in _NAMES.items() for name in names.split()},
}
_CURRENCIES = {r"\$": "$", "$": "$", "€": "euro", "£": "lb", "¥": "yen", "₹": "rupee"}
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
_TEMPERATURE = re.compile(r"(.*[\d})]) ?\^\{\\circ\} ?(?:\\(?:text|mathrm) ?\{ ?)?([CF])(?: ?\})?")
CHANGES_VALUE = re.compile(
    r"\b(?:squared|cubed|factorial|times|plus|minus|over|divided|roots?|halves|mod|modulo|power|choose|base|twice|thrice"
    r"|double|triple|lakhs?|crores?|gross|scores?|pi|tau|sqrt|radicals?|imaginary|inverse|reciprocal|negative|positive"
    r"|binary|ternary|octal|decimal|hex(?:adecimal)?|below|above|under|hundredths?|thousandths?|millionths?|pairs?"
    rf"|(?:{'|'.join([*SCALES, *PARTS])})s?)\b",
    re.I,
)
#: Which way, which side, which half of the day: no unit, and never left out.
_DIRECTION = re.compile(
    r"(?:counter|anti)?-?clockwise|north|south|east|west|left|right|up|down|forwards?|backwards?|[ap]\.? ?m\.?|bce?|ad"
    r"|loss|profit|ago|deficit|surplus|debt|positive|negative",
    re.I,
)
#: A number and nothing but which way it goes.
QUALIFIED = re.compile(
    rf"[-+$]*\d[\d.,]*[$]? (?:{_DIRECTION.pattern}|in (?!all\b|total\b|sum\b)[a-z ]+|(?:below|under|above) [a-z]+)[.]?",
    re.I,
)
_CONNECTS = re.compile(
    r"\b(?:not|or|and|to|between|if|for|when|where|at|least|most|more|less|than|but|else|wrong|possibly|maybe|perhaps"
    r"|alternatively|in (?=[a-z]))\b",
    re.I,
)
_POWERS = ((re.compile(r"\b(?:square|sq|squared)\b", re.I), "2"), (re.compile(r"\b(?:cubic|cubed)\b", re.I), "3"))


def split_unit(text: str) -> tuple[str, str | None]:
    r"""(what is left, unit or null). A bare single letter is a variable, never a unit: `6m` is 6·m.

    A word that is no known unit is one of its own (`7 apples`), unless it may change the value (`7 dozens`, `5 left`).

    >>> split_unit(r"6\text{ m}"), split_unit("6m"), split_unit("45^{\\circ}"), split_unit(r"\$5")
    (('6', 'm'), ('6m', None), ('45', '°'), ('5', '$'))
    >>> split_unit("7 red apples"), split_unit("20 miles per hour"), split_unit("7 dozens")
    (('7', 'red apple'), ('20', 'mi/h'), ('7 dozens', None))
    """
    text = text.strip()
    if len(text) > MAX_UNIT_CHARS:
        return text, None
    for sign, unit in _CURRENCIES.items():
        if text.startswith(sign):
            return text[len(sign) :].lstrip("\\$ "), unit
    if speed := re.match(r"(.*[\d})]) ?((?:m|km|mi|ft|cm)/(?:s|h|hr|min|sec))(?: ?\^ ?\{?(2)\}?)?$", text):
        return speed[1], re.sub("hr|sec", lambda name: name[0][0], speed[2]) + (speed[3] or "")
    if warm := _TEMPERATURE.fullmatch(text):
        return warm[1], f"°{warm[2]}"
    for suffix, unit in ((r"\%", "%"), ("%", "%"), (r"^{\circ}", "°"), *_CURRENCIES.items()):
        if text.endswith(suffix):
            return text[: -len(suffix)].rstrip(), unit
    match = _TEXT_UNIT.match(text) or _WORD_UNIT.match(text)
    if match is None:
        return text, None
    groups = match.groupdict()
    word = re.sub(r"\bper cent\b", "percent", (groups.get("word") or groups.get("glued") or "").strip())
    unit = _unit(word)
    if unit is None:
        return text, None
    power = (groups.get("power") or "").strip(" ^{}") or next((p for w, p in _POWERS if w.search(word)), "")
    return match["number"].strip(), (unit + power) or "unit"


def _unit(word: str) -> str | None:
    """The sign of a unit, or the words themselves in the singular; null for what is none."""
    first, _, rest = word.partition(" ")
    powered = _known(first) is not None and rest.lower() in ("squared", "cubed")
    words = re.sub(r"[. ]+", " ", word).strip()
    if _known(words) is None and (
        not re.fullmatch(r"[A-Za-z/][A-Za-z/ '-]+", words)
        or (CHANGES_VALUE.search(words) and not powered)
        or _DIRECTION.fullmatch(word)
        or _CONNECTS.search(words)
        or any(number_in_words(part) is not None for part in words.split())
    ):
        return None
    above, per, below = re.sub(r" ?/ ?", " per ", words).partition(" per ")
    sign = _product(above)
    return f"{sign}/{_product(below)}" if per else sign


def _product(words: str) -> str:
    """`square feet` as `ft`; words of which one is no unit as they are, in the singular."""
    known = [_known(word) for word in words.split() if word.lower() not in ("squared", "cubed")]
    if None in known:
        return " ".join(_singular(word.lower()) for word in words.split())
    return "".join(sign for sign in known if sign)


def _known(word: str) -> str | None:
    """The sign of a unit with this name; case counts for signs alone."""
    if word in _UNITS:
        return _UNITS[word]
    low = word.lower()
    return next((_UNITS[name] for name in (low, _singular(low)) if name in _UNITS and len(low) > 1), None)


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 2 and not word.endswith("ss") else word

r"""Quantities in two or more units, `3 hours 20 minutes`: equal to others like it, whatever words are used."""

from __future__ import annotations

import re
from fractions import Fraction

from tasks.domain.grading.units import split_unit

#: Units that are counted together, each with what it is worth in the smallest of its row.
_ROWS: tuple[dict[str, int], ...] = (
    {"week": 604_800, "day": 86_400, "h": 3_600, "min": 60, "s": 1},
    {"year": 12, "month": 1},
    {"km": 1_000_000, "m": 1_000, "cm": 10, "mm": 1},
    {"mi": 63_360, "yd": 36, "ft": 12, "in": 1},
    {"kg": 1_000, "g": 1},
    {"lb": 16, "oz": 1},
    {"$": 100, "cent": 1},
)
_WRAPPER = re.compile(r"\\(?:text|mathrm|textrm|mbox) ?\{([^{}]*)\}")
_PART = r"(\d+(?:\.\d+)?) ?([A-Za-z]+)\.?"
_COMPOUND = re.compile(rf"{_PART}(?:(?: ?, ?| ?,? and | ){_PART})+\.?", re.I)
_PARTS = re.compile(_PART)
#: Feet and inches.
_FEET = re.compile(r"^(\d+) ?' ?(\d+) ?(?:''|\\?\")$")
MAX_CHARS = 120


def compound_quantity(text: str) -> tuple[Fraction, str] | None:
    r"""(value, unit) in the smallest unit of its kind; null for a single unit and for anything else.

    >>> compound_quantity(r"3 \text{ hours and } 20 \text{ minutes}"), compound_quantity("2 feet 3 inches")
    ((Fraction(12000, 1), 's'), (Fraction(27, 1), 'in'))
    >>> compound_quantity("3 hours 20 feet"), compound_quantity("20 minutes"), compound_quantity("5 m 3 m")
    (None, None, None)
    """
    if len(text) > MAX_CHARS or not text[:2].strip("$")[:1].isdigit():
        return None
    plain = _plain(text)
    if not _COMPOUND.fullmatch(plain):
        return None
    parts = [(Fraction(count), split_unit(rf"1\text{{{word}}}")[1] or "") for count, word in _PARTS.findall(plain)]
    for row in _ROWS:
        places = [list(row).index(unit) for _, unit in parts if unit in row]
        if len(places) == len(parts) and places == sorted(set(places)):
            return sum((count * row[unit] for count, unit in parts), Fraction(0)), list(row)[-1]
    return None


def compound_in(sentence: str) -> str | None:
    """The one such quantity of a sentence; null if there is none, or if the sentence has other numbers.

    >>> compound_in("It takes $3$ hours and $20$ minutes."), compound_in("3 hours 20 minutes for 2 men")
    ('3 hours and 20 minutes', None)
    """
    plain = _plain(sentence)
    found = _COMPOUND.search(plain) if len(sentence) <= MAX_CHARS else None
    alone = found is not None and not re.search(r"[\d\\]|[-+*/<>=~] ?$", plain[: found.start()])
    alone = alone and found is not None and not re.search(r"[\d\\]", plain[found.end() :])
    return found[0].rstrip(".") if found and alone and compound_quantity(found[0]) is not None else None


def _plain(text: str) -> str:
    text = _FEET.sub(r"\1 ft \2 in", text)
    return re.sub(r"\s+", " ", re.sub(r"(?<!\\)\$", "", _WRAPPER.sub(r" \1 ", text))).strip(" .")

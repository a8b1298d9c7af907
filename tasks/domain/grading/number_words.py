"""Numbers in English words."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_UNITS = {word: value for value, word in enumerate(_SMALL)}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
CARDINALS = (*_SMALL, *_TENS)
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_PART = {
    "half": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
}
PARTS = {**_PART, **{f"{word}s": value for word, value in _PART.items()}, "halves": 2}


def number_in_words(text: str) -> Fraction | None:
    """The number that English words spell, or null.

    >>> number_in_words("minus two thirds"), number_in_words("3 dozen"), number_in_words("one and a half")
    (Fraction(-2, 3), Fraction(36, 1), Fraction(3, 2))
    """
    words = re.sub(r"[-,]", " ", text.lower()).split()
    if not words or len(words) > 20:
        return None
    sign = -1 if words[0] in ("minus", "negative") else 1
    words = [w for w in (words[1:] if sign < 0 else words) if w != "and"]
    if words and words[0] == "a" and words[1:2] and words[1] in SCALES:
        words = words[1:]
    if len(words) > 2 and words[-2] == "a" and words[-1] in _PART and (whole := _cardinal(words[:-2])) is not None:
        return sign * (whole + Fraction(1, _PART[words[-1]]))
    if words and words[-1] in PARTS:
        top = _cardinal(words[:-1]) if words[:-1] not in ([], ["a"]) else 1
        return None if top is None else sign * Fraction(top, PARTS[words[-1]])
    whole = _cardinal(words)
    return None if whole is None else sign * Fraction(whole)


def _cardinal(words: list[str]) -> Fraction | None:
    total, current, seen = Fraction(0), Fraction(0), False
    last = 10**15
    for word in words:
        if word in _UNITS or word in _TENS:
            value = Fraction(_UNITS.get(word, _TENS.get(word, 0)))
            if seen and not (last in (100, 1000, 10**6, 10**9, 10**12) or (last == 10 and 0 < value < 10)):
                return None
            current += value
            last = 10 if word in _TENS else 1
        elif word in SCALES:
            scale = SCALES[word]
            if not seen:
                current = Fraction(1)
            if scale in (100, 12):
                current *= scale
            else:
                total, current = total + current * scale, Fraction(0)
            last = scale
        elif re.fullmatch(r"\d+(\.\d+)?", word) and not seen:
            current, last = Fraction(word), 1
        else:
            return None
        seen = True
    return total + current if seen and not all(re.fullmatch(r"[\d.]+", w) for w in words) else None


_TWICE = re.compile(r"([A-Za-z -]{3,60})\((-?\d[\d,]*)\)|(-?\d[\d,]*) ?\(([A-Za-z -]{3,60})\)")
_COUNTED = re.compile(
    r"(?:so |thus,? |therefore,? |hence,? )?(?:there (?:are|is|exists?)|we (?:have|get|find)|it is|it's) +"
    r"([a-z-]+(?: [a-z-]+){0,9})\.?",
    re.I,
)


def said_twice(text: str) -> tuple[str, bool] | None:
    """(digits, do the words say the same number) of a number in digits and in words; null for anything else.

    >>> said_twice("seven (7)"), said_twice("7 (eight)"), said_twice("7 (apples)")
    (('7', True), ('7', False), None)
    """
    if (found := _TWICE.fullmatch(text)) is None:
        return None
    digits, value = found[2] or found[3], number_in_words(found[1] or found[4])
    return None if value is None else (digits, value == int(digits.replace(",", "")))


def counted(text: str) -> str | None:
    """The number, in figures, of a sentence that counts something in words; null for any other sentence.

    >>> counted("There are seven such integers."), counted("There are twenty one of them"), counted("There are none")
    ('7', '21', None)
    """
    found = _COUNTED.fullmatch(text.strip())
    words = found[1].split() if found else []
    for end in range(min(len(words), 6), 0, -1):
        value = number_in_words(" ".join(words[:end]))
        if value is not None and not any(number_in_words(word) is not None for word in words[end:]):
            return str(value)
    return None

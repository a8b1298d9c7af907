r"""Numbers written in another base: `137_8`, `137_{\text{eight}}`, `137 (base eight)`."""

from __future__ import annotations

import re

from tasks.domain.grading.number_words import number_in_words
from tasks.domain.grading.quantities import number

_INDEXED = re.compile(r"\(?(\d+)\)? ?_ ?(?:\{ ?\(?(\d{1,2})\)? ?\}|(\d))(?!\d)")
_IN_WORDS = re.compile(r"(\d+) ?[(,]? ?(?:in )?base[- ]?(\d{1,2}|[a-z]+) ?\)?\.?", re.I)
_NAMED_INDEX = re.compile(r"(\d\)?) ?_ ?\{? ?\\(?:text|mathrm|mbox) ?\{ ?([a-z]+) ?\} ?\}?")


def says_base(text: str) -> bool:
    """Is it a number with its base in words?

    >>> says_base("137 (base eight)"), says_base("137 in base 8"), says_base("7 at the base")
    (True, True, False)
    """
    found = _IN_WORDS.fullmatch(text.strip(" $"))
    return found is not None and _base(found[2]) is not None


def same_in_base(prediction: str, gold: str) -> bool | None:
    r"""`101_2` is 5, and what the gold `101_2` asks for may leave the base out; null if no base is written.

    A base in words says that the number is not the one it looks like: it is no way to write a gold without a base.

    >>> same_in_base("101_2", "5"), same_in_base("101", "101_2"), same_in_base("101 (base two)", "101_2")
    (True, True, True)
    >>> same_in_base("7 (base eight)", "7"), same_in_base("7", "7")
    (False, None)
    """
    prediction, gold = _numeric(prediction), _numeric(gold)
    worded, got, want = (_IN_WORDS.fullmatch(prediction), _INDEXED.fullmatch(prediction), _INDEXED.fullmatch(gold))
    if worded is not None and says_base(prediction):
        return want is not None and (worded[1], _base(worded[2])) == (want[1], int(want[2] or want[3]))
    if want is not None and got is None:
        return True if prediction == want[1] else None
    if got is None:
        return None
    value = _value(got)
    if want is not None:
        return got.groups() == want.groups() or (value is not None and value == _value(want))
    plain = number(gold)
    return None if plain is None else plain.value == value


def _numeric(text: str) -> str:
    r"""With its base in figures: `7_{\text{eight}}` as `7_{8}`."""
    return _NAMED_INDEX.sub(lambda m: f"{m[1]}_{{{_base(m[2]) or m[2]}}}", text.strip())


def _base(text: str) -> int | None:
    value = int(text) if text.isdigit() else number_in_words(text)
    return int(value) if value is not None and value.denominator == 1 and 2 <= value <= 36 else None


def _value(match: re.Match[str]) -> int | None:
    base = int(match[2] or match[3])
    return int(match[1], base) if 2 <= base <= 36 and all(int(d) < base for d in match[1]) else None

"""A trace said again in other words: what an encoder's distance makes of a change that changes nothing.

Connectives and everyday verbs change places with a synonym, mathematics stays as it is. The distance of a trace from
itself reworded is a floor: a difference between two traces of that size means nothing.
"""

from __future__ import annotations

import re

#: The window under which reworded traces are kept. It holds one trace a problem and no trace of its own.
REWORDED = "reworded"
SYNONYMS = (
    ("so", "thus"),
    ("therefore", "hence"),
    ("because", "since"),
    ("get", "obtain"),
    ("gives", "yields"),
    ("find", "determine"),
    ("check", "verify"),
    ("compute", "calculate"),
    ("assume", "suppose"),
    ("also", "moreover"),
    ("but", "however"),
    ("clearly", "obviously"),
    ("start", "begin"),
    ("try", "attempt"),
    ("maybe", "perhaps"),
    ("recall", "remember"),
    ("note", "observe"),
    ("use", "apply"),
    ("using", "applying"),
    ("need", "require"),
    ("finally", "eventually"),
    ("simple", "easy"),
    ("large", "big"),
    ("must", "should"),
    ("shows", "demonstrates"),
    ("answer", "result"),
    ("equals", "is"),
    ("whole", "entire"),
    ("several", "various"),
    ("wrong", "incorrect"),
)
_OTHER = {one: two for pair in SYNONYMS for one, two in (pair, pair[::-1]) if one != "is"}
_WORD = re.compile(r"(?<![\\\w])(" + "|".join(sorted(_OTHER, key=len, reverse=True)) + r")(?!\w)", re.IGNORECASE)
_INLINE = re.compile(r"\\\((.+?)\\\)", re.DOTALL)


def reworded(text: str) -> str | None:
    r"""The same in other words; null where no word has a synonym here.

    >>> reworded(r"So we get \(x = 2\), thus 4.")
    'Thus we obtain $x = 2$, so 4.'
    >>> reworded("x = 2") is None
    True
    """
    said, changed = _WORD.subn(lambda m: _cased(m[0], _OTHER[m[0].lower()]), text)
    return _INLINE.sub(lambda m: f"${m[1]}$", said) if changed else None


def _cased(old: str, new: str) -> str:
    return new.capitalize() if old[0].isupper() else new

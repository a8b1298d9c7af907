r"""The integer that counts periods, `\frac{\pi}{6}+k\pi`: any letter from k to n will do."""

from __future__ import annotations

import re

#: No factor, power or factorial may follow, and it stands in no exponent by itself: `\pi n^2` counts no periods.
_ENDS = r"(?! ?(?:(?!i(?![A-Za-z]))[A-Za-z]|[\^!_(]))"
_COUNTS_PERIODS = re.compile(rf"\\pi ?([k-n]){_ENDS}|(?<![A-Za-z\\^_])([k-n]) ?\\pi(?![A-Za-z]){_ENDS}")


def with_parameter_of(text: str, gold: str) -> str:
    r"""The text with the gold's letter for the integer that counts periods, if each has one and it is free.

    >>> with_parameter_of(r"\frac{\pi}{6}+n\pi", r"\frac{\pi}{6}+k\pi"), with_parameter_of("2^n", r"2^k")
    ('\\frac{\\pi}{6}+k\\pi', '2^n')
    """
    mine, wanted = ({one or other for one, other in _COUNTS_PERIODS.findall(t)} for t in (text, gold))
    if len(mine) != 1 or len(wanted) != 1:
        return text
    (old,), (new,) = mine, wanted
    if new in re.sub(r"\\[A-Za-z]+", "", text) or old in re.sub(r"\\[A-Za-z]+", "", gold):
        return text
    return re.sub(rf"\\[A-Za-z]+|{old}", lambda found: new if found[0] == old else found[0], text)

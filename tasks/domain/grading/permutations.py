r"""Answers that name their permutations in words: `(1,2,3) and its permutations`, written out."""

from __future__ import annotations

import itertools
import re

#: Tuples of more are not written out.
MAX_ENTRIES, MAX_TUPLES, MAX_CHARS = 5, 12, 400
_GAP = r"[\s,;$]*+"
#: Possessive throughout: a list of tuples is read once, whatever follows it.
_PERMUTED = re.compile(
    rf"(?P<tuples>\([^()]*+\)(?:{_GAP}(?:(?:and|or){_GAP})?+\([^()]*+\))*+){_GAP}(?:\\text ?\{{)?+{_GAP}"
    rf"(?:(?:and|or|with|together with|plus|along with) )?+(?:(?:all|any|every|its|their|the|of) )*+"
    r"(?P<cyclic>cyclic )?+(?:permutations?|rearrangements?)"
    r"(?: (?:of (?:it|them|these|this|those|the above|the coordinates|coordinates)|thereof))?+[\s.}$]*+"
)
_ENTRIES = re.compile(r"\(([^()]*)\)")


def permuted(text: str) -> str | None:
    r"""All tuples that are meant, one after the other; null for any other answer.

    >>> permuted("(1,2) and its permutations"), permuted("(1, 2, 3) and cyclic permutations")
    ('(1,2), (2,1)', '(1,2,3), (2,3,1), (3,1,2)')
    >>> permuted("(1,2), (2,1)")
    """
    if (
        len(text) > MAX_CHARS
        or not re.search("permut|rearr", text)
        or (found := _PERMUTED.fullmatch(text.strip(" $.*"))) is None
    ):
        return None
    written = [tuple(part.strip() for part in inner.split(",")) for inner in _ENTRIES.findall(found["tuples"])]
    if len(written) > MAX_TUPLES or max(map(len, written)) > MAX_ENTRIES:
        return None
    every = (turn for entries in written for turn in (_turns(entries) if found["cyclic"] else _orders(entries)))
    return ", ".join(f"({','.join(entries)})" for entries in dict.fromkeys(every))


def _orders(entries: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(itertools.permutations(entries))


def _turns(entries: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [entries[i:] + entries[:i] for i in range(len(entries))]

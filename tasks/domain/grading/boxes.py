r"""Boxes of a text: what stands in every `\boxed{}`, read in one pass, however many are nested or left open."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.S)
_BARE = re.compile(r"[^\s$]+")
_PERCENT = re.compile(r"\s*\\?%")
_DENIAL = re.compile(r"(?:\bnot|n't|\bnever|\brather than|\binstead of|\bexcept)(?: equal to)?[\s$(:]*$", re.I)
_SPACE = r"(?:[\s$,;]|\\[,;:! ()\[\]]|\\q?quad(?![A-Za-z]))*"
_SEPARATOR = re.compile(rf"{_SPACE}(?:and|or|\\(?:text|mbox|textrm|mathrm) ?\{{[ ,;]*(?:and|or) ?\}})?{_SPACE}")
#: A longer text between two boxes separates nothing.
MAX_SEPARATOR = 40


def boxed(text: str) -> tuple[list[str], bool, bool]:
    r"""(different contents of every `\boxed`, do they stand in one list, was the last one left open).

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3}")
    (['\\frac{1}{2}', '3'], True, False)
    >>> boxed(r"It is not \boxed{\boxed{7}}.")
    (['not 7'], False, False)
    """
    if not _BOX.search(text):
        return [], False, False
    closing = _closing_braces(text)
    found: list[str] = []
    gaps: list[str] = []
    end, cut = 0, False
    for match in _BOX.finditer(text):
        start = match.end()
        if match.start() < end:
            continue
        gap = text[max(end, match.start() - MAX_SEPARATOR) : match.start()]
        gaps.append(gap if match.start() - end <= MAX_SEPARATOR else "…")
        if text[start : start + 1] != "{":
            bare = _BARE.match(text, start)
            found.append(bare.group().rstrip(".,") if bare else "")
            end = bare.end() if bare else start
            continue
        stop = closing.get(start)
        cut = stop is None
        inner = _unboxed(text, start + 1, stop if stop is not None else _line_end(text, start), closing)
        end = len(text) if stop is None else stop + 1
        percent = stop is not None and _PERCENT.match(text, end)
        found.append(("not " if _DENIAL.search(gap) else "") + inner + (r"\%" if percent else ""))
    joined = len(found) > 1 and all(_SEPARATOR.fullmatch(gap) for gap in gaps[1:])
    return list(dict.fromkeys(found)), joined, cut


def before_boxes(text: str) -> str:
    r"""Nothing where there is none.

    >>> before_boxes(r"3 + 4 = 7, so \boxed{7} and not \boxed{8}"), before_boxes("7")
    ('3 + 4 = 7, so ', '')
    """
    first = _BOX.search(text)
    return text[: first.start()] if first else ""


def _unboxed(text: str, start: int, end: int, closing: dict[int, int]) -> str:
    """What stands between two places, out of the boxes around it if there is one box in each."""
    while match := _BOX.match(text, _skip_space(text, start), end):
        inner = match.end()
        if text[inner : inner + 1] != "{":
            break
        stop = closing.get(inner, end)
        if _BOX.search(text, stop, end):
            break
        start, end = inner + 1, stop
    return text[start:end]


def _skip_space(text: str, start: int) -> int:
    while text[start : start + 1].isspace():
        start += 1
    return start


def _line_end(text: str, start: int) -> int:
    """Where a box that is never closed ends: with its line, without what ends a sentence."""
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    while end > start + 1 and text[end - 1] in "$. ":
        end -= 1
    return end


def _closing_braces(text: str) -> dict[int, int]:
    r"""Place of every opening brace that is closed → place of the brace that closes it. `\{` is no brace, `\\{` is."""
    open_at: list[int] = []
    closing = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            open_at.append(match.start())
        elif match.group() == "}" and open_at:
            closing[open_at.pop()] = match.start()
    return closing

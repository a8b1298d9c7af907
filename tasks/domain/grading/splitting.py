"""Text taken apart at what stands outside every bracket: characters, commands, words that join."""

from __future__ import annotations

import re

_AND = re.compile(
    r"\\(?:text|mathrm|textrm|quad) ?\{ ?,? ?(and|or) ?\}|(?<![A-Za-z\\])(and|or|OR|AND)(?![A-Za-z])|\\(?:vee|lor"
    r"|wedge|land)(?![A-Za-z])"
)


def split_top(text: str, separators: str) -> list[str]:
    """Split at characters that stand outside every bracket.

    >>> split_top("1,(2,3),4", ",")
    ['1', '(2,3)', '4']
    """
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        escaped = i > 0 and text[i - 1] == "\\"
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and char in separators and not (escaped and char in ",;"):
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*parts, text[start:]]]


def split_words(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    i = 0
    while i < len(text):
        if depth == 0 and (match := _AND.match(text, i)):
            parts.append(text[start:i])
            i = start = match.end()
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
    parts = [p.strip(" ,;") for p in [*parts, text[start:]]]
    return [p for p in parts if p]


def split_command(text: str, command: str) -> list[str]:
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        if depth == 0 and text.startswith(command, i) and not text[i + len(command) : i + len(command) + 1].isalpha():
            parts.append(text[start:i])
            i = start = i + len(command)
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth < 0:
            depth = 0
        i += 1
    return [p.strip() for p in [*parts, text[start:]]]


def one_bracket(text: str) -> bool:
    """Does the bracket at the start close at the very end? `(1,2]` counts; `(1,2)(3,4)` does not."""
    depth = 0
    for i, char in enumerate(text[1:-1], start=1):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0 and i < len(text) - 1:
            return False
    return depth == 0

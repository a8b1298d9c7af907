"""A rollout taken apart for reading: tags, speakers, formulas, plain text. No mark-up is made or obeyed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from storage.errors import printable

TAG = re.compile(r"</?(?:mutipersonaDebate|think|answer)>")
SPEAKER = re.compile(r"(?:\A\s*|(?<=\n)|(?<=[.?!] ))((?:Expert|Persona) \d+|[A-Z][a-z]{1,15}):(?=\s)")
#: A box needs no dollars around it.
BOX = r"\\boxed\{(?:[^{}$\n]++|\{(?:[^{}$\n]++|\{[^{}$\n]*+\})*+\})*+\}"
DELIMITED = r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<![\\$\d])\$([^$\n]{1,400}?)\$(?!\d)"
MATH = re.compile(f"{DELIMITED}|({BOX})", re.DOTALL)
DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")

Kind = Literal["tag", "speaker", "display", "math", "text"]


@dataclass(frozen=True, slots=True)
class Piece:
    """display, math: a formula without its delimiters, set on its own line or in the text."""

    kind: Kind
    text: str


def pieces(text: str) -> list[Piece]:
    r"""
    >>> [(p.kind, p.text) for p in pieces(r"<think>Ann: so \(x=1\).</think>")]
    [('tag', '<think>'), ('speaker', 'Ann'), ('text', ' so '), ('math', 'x=1'), ('text', '.'), ('tag', '</think>')]
    """
    return [piece for piece in _split(text, TAG, "tag", _speakers) if piece.text]


def plain(text: str) -> str:
    """Characters that turn a line round or steer a terminal are named, so that they show and do nothing."""
    named = DIRECTION.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text)
    return printable(named, "\n\t")


def _split(
    text: str, pattern: re.Pattern[str], kind: Kind, between: Callable[[str], Iterator[Piece]]
) -> Iterator[Piece]:
    end = 0
    for found in pattern.finditer(text):
        yield from between(text[end : found.start()])
        yield Piece(kind, found[1] if pattern.groups else found[0])
        end = found.end()
    yield from between(text[end:])


def _speakers(text: str) -> Iterator[Piece]:
    return _split(text, SPEAKER, "speaker", _formulas)


def _formulas(text: str) -> Iterator[Piece]:
    end = 0
    for found in MATH.finditer(text):
        yield Piece("text", plain(text[end : found.start()]))
        display = found.group(1) is not None or found.group(2) is not None
        formula = next(group for group in found.groups() if group is not None)
        yield Piece("display" if display else "math", plain(re.sub(r"\s+", " ", formula.strip())))
        end = found.end()
    yield Piece("text", plain(text[end:]))

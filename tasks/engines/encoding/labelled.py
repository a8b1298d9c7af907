"""Labelled traces: a problem's solutions, each in two wordings, by which a partition's threshold is calibrated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

FILE = Path(__file__).with_name("labelled_traces.jsonl")


@dataclass(frozen=True, slots=True)
class LabelledProblem:
    """traces and, in their order, which solution each of them says."""

    problem: str
    traces: Sequence[str]
    solutions: Sequence[str]


@cache
def labelled_sha256() -> str:
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def labelled_problems() -> list[LabelledProblem]:
    """In the order of the file; all traces of a problem together."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in FILE.read_bytes().splitlines():
        row = orjson.loads(line)
        found.setdefault(row["problem"], []).append((row["trace"], row["solution"]))
    return [LabelledProblem(problem, *map(list, zip(*rows, strict=True))) for problem, rows in found.items()]

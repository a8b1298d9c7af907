"""Where in the text of a study's file something is said."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flows.study.reading import Fault


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The line at which a field, or the nearest table above it, is written; null for the file as a whole.

    >>> line_of("# mine\\n[training]\\n\\nsteps = 3\\n", ("training", "steps"))
    4
    """
    whole = tomllib.loads(text)
    while path and not _has(whole, path):
        path = path[:-1]
    lines, without = text.split("\n"), 0
    for n in range(len(lines) if path else 0):
        try:
            found = tomllib.loads("\n".join(lines[:n]))
        except tomllib.TOMLDecodeError:  # within a text or list of several lines
            continue
        if _has(found, path):
            break
        without = n
    return without + 1 if path else None


def said_at(where: str, text: str, question: str, settings: Sequence[str]) -> Callable[[tuple[str, ...]], str]:
    """What stands before a sentence about a field: where the file or `--set` says it; nothing where neither does.

    >>> at = said_at("mine.toml", "[pool]\\nsources = ['a.jsonl']\\n", "", ["model=mine"])
    >>> at(("pool", "sources")), at(("model",)), at(("encoder", "name"))
    ('mine.toml, line 2: pool.sources: ', '--set model: ', '')
    """
    paths = {setting.partition("=")[0].strip() for setting in settings}
    whole = tomllib.loads(text)

    def at(path: tuple[str, ...]) -> str:
        if (name := ".".join(path)) in paths:
            return f"--set {name}: "
        tables = [("questions", question), ("matrix",), ()] if question else [()]
        found = next(
            (line_of(text, (*table, *path)) for table in tables if path and _has(whole, (*table, *path))), None
        )
        return f"{where}, line {found}: {name}: " if found else ""

    return at


def _has(table: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if isinstance(table, list) and name.isdecimal():  # a place among tables
            table = {str(place): one for place, one in enumerate(table, 1)}
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


def listed(where: str, text: str, faults: list[Fault]) -> str:
    placed = sorted({(line_of(text, fault.path) or 0, str(fault)) for fault in faults})
    told = [f"line {line}: {said}" if line else said for line, said in placed]
    if len(told) == 1:
        return f"{where}, {told[0]}" if placed[0][0] else f"{where}: {told[0]}"
    return "\n  ".join([f"{where}: {len(told)} mistakes", *told])

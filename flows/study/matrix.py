"""A question for each combination of lists, called by its values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from storage.errors import UserError

#: A value that a question of a matrix is called by.
WORD = re.compile(r"[!-~]{1,60}")


def combinations(matrix: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    >>> [name for name, _ in combinations({"rollouts": {"temperature": [0.7, 1.0]}, "seeds": [[0], [1]]})]
    ['temperature=0.7,seeds=0', 'temperature=0.7,seeds=1', 'temperature=1.0,seeds=0', 'temperature=1.0,seeds=1']
    """
    axes = {path: values if isinstance(values, list) else [values] for path, values in flat(matrix)}
    last = [path.rpartition(".")[2] for path in axes]
    names = [word if last.count(word) == 1 else path for path, word in zip(axes, last, strict=True)]
    for chosen in product(*(enumerate(values, 1) for values in axes.values())) if axes else ():
        spelt = (f"{name}={_spelt(value, nth)}" for name, (nth, value) in zip(names, chosen, strict=True))
        yield ",".join(spelt), dict(zip(axes, (value for _, value in chosen), strict=True))


def _spelt(value: object, nth: int) -> str:
    """By which place it has among its axis' values, where it is no word that a person types, as a prompt is none.

    >>> _spelt(["panel", "thinking"], 1), _spelt("Solve it: {problem}", 2)
    ('panel+thinking', '#2')
    """
    spelt = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return spelt if WORD.fullmatch(spelt) else f"#{nth}"


def flat(table: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def nested(table: Mapping[str, Any]) -> dict[str, Any]:
    """Errors: UserError for a path that is given twice, or goes through the value of another.

    >>> nested({"pool.seed": 1, "pool": {"limit": 2}})
    {'pool': {'seed': 1, 'limit': 2}}
    """
    made: dict[str, Any] = {}
    for path, value in table.items():
        *above, name = path.split(".")
        inner = made
        for word in above:
            inner = inner.setdefault(word, {})
            if not isinstance(inner, dict):
                raise UserError(f"'{word}' has no fields of its own, and '{path}' asks for one")
        _put(inner, name, value, path)
    return made


def _put(table: dict[str, Any], name: str, value: Any, path: str) -> None:
    old = table.get(name)
    if name in table and not (isinstance(old, dict) and isinstance(value, Mapping)):
        raise UserError(f"'{path}' is given twice")
    table[name] = {**old} if isinstance(old, dict) else {} if isinstance(value, Mapping) else value
    for below, one in value.items() if isinstance(value, Mapping) else ():
        _put(table[name], below, one, f"{path}.{below}")

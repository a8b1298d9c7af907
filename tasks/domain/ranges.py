"""What a setting may be, declared with its field and checked when a value is made: `Annotated[int, Within(1)]` for a
number, a Literal for a choice. A field without either takes anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from storage.errors import UserError


@dataclass(frozen=True, slots=True)
class Within:
    """Finite numbers from `least` to `most`, both included but for the one that is `without`."""

    least: float
    most: float = math.inf
    without: Literal["least", "most"] | None = None

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value) or value == {"least": self.least, "most": self.most}.get(self.without or ""):
            return False
        return self.least <= value <= self.most

    def __str__(self) -> str:
        """
        >>> print(Within(1), Within(0, without="least"), Within(0, 1), Within(0, 1, without="most"), sep=", ")
        at least 1, above 0, from 0 to 1, from 0 to below 1
        """
        if self.most == math.inf:
            return f"{'above' if self.without == 'least' else 'at least'} {self.least:g}"
        least, most = (f"{word} " * (self.without == end) for word, end in (("above", "least"), ("below", "most")))
        return f"from {least}{self.least:g} to {most}{self.most:g}"


class Ranged:
    """Dataclasses whose fields say what they may be."""

    __slots__ = ()

    def __post_init__(self) -> None:
        refuse_impossible(self, type(self).__name__)


def refuse_impossible(value: object, what: str) -> None:
    """Errors: UserError naming the first field that is not what it may be, its value, and what that is."""
    hints = declared(type(value))
    for field in fields(value):  # type: ignore[arg-type]
        for wrong in _wrong(hints[field.name], getattr(value, field.name), field.name):
            raise UserError(f"{what}: {wrong}")


@cache
def declared(kind: type) -> dict[str, Any]:
    """The fields' types with what is declared beside them."""
    return get_type_hints(kind, include_extras=True)


def _wrong(hint: Any, value: Any, name: str) -> Iterator[str]:
    """What is wrong with a value, if something is."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, *limits = parts
        whole = kind is int
        number: bool = not isinstance(value, bool) and isinstance(value, Integral if whole else Real)
        for limit in (limit for limit in limits if isinstance(limit, Within)):
            if not number or float(value) not in limit:
                yield f"{name} is {value!r}; it must be {'a whole number ' if whole and not number else ''}{limit}"
    elif origin is Literal:
        if value not in parts:
            yield f"unknown {name} {value!r}; choose from {', '.join(map(str, parts))}"
    elif origin in (Union, UnionType):
        if value is not None:
            yield from _wrong(next(part for part in parts if part is not type(None)), value, name)
    elif origin is tuple and isinstance(value, tuple):
        same = parts[-1] is Ellipsis
        if not same and len(value) != len(parts):
            yield f"{name} is {value!r}; it must be {len(parts)} values"
            return
        for part, one in zip(parts[:1] * len(value) if same else parts, value, strict=True):
            yield from _wrong(part, one, name)

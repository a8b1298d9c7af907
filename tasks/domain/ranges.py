"""What a setting may be, declared with its field and checked when a value is made: `Annotated[int, Within(1)]` for a
number, a Literal for a choice, else what its type says. One declaration for the command line, forms and files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from storage.errors import UserError, did_you_mean


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
            return f"{'above' if self.without == 'least' else 'at least'} {self.least:.10g}"
        least, most = (f"{word} " * (self.without == end) for word, end in (("above", "least"), ("below", "most")))
        return f"from {least}{self.least:.10g} to {most}{self.most:.10g}"


#: As torch and NumPy both take them.
SEEDS = Within(0, 2**31 - 1)
Seed = Annotated[int, SEEDS]


class Ranged:
    """Dataclasses whose fields say what they may be."""

    __slots__ = ()

    def __post_init__(self) -> None:
        refuse_impossible(self, type(self).__name__)


def refuse_impossible(value: object, what: str) -> None:
    """Errors: UserError naming the first field that is not what it may be, its value, and what that is."""
    hints = declared(type(value))
    for field in fields(value):  # type: ignore[arg-type]
        for said in wrong(hints[field.name], getattr(value, field.name), field.name):
            raise UserError(f"{what}: {said}")


@cache
def declared(kind: type) -> dict[str, Any]:
    """The fields' types with what is declared beside them."""
    return get_type_hints(kind, include_extras=True)


def optional(hint: Any) -> tuple[Any, bool]:
    """The type, and whether null is one of its values.

    >>> optional(int | None), optional(tuple[int, ...])
    ((<class 'int'>, True), (tuple[int, ...], False))
    """
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return next(part for part in get_args(hint) if part is not type(None)), True


def wrong(hint: Any, value: Any, name: str) -> Iterator[str]:
    """What is wrong with a value of a field, if something is.

    >>> list(wrong(tuple[int, ...], (1, 2.5), "ks")), list(wrong(bool, "yes", "chat"))
    (['ks is 2.5; it must be a whole number'], ["chat is 'yes'; it must be true or false"])
    """
    hint, may_be_null = optional(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if may_be_null and value is None:
        return
    if origin is Annotated:
        kind, *limits = parts
        whole = kind is int
        number = _is_of(kind, value)
        for limit in (limit for limit in limits if isinstance(limit, Within)):
            if not number or not _finite(value) or float(value) not in limit:
                finite = not number or _finite(value)
                kind_of = "a whole number " if whole and not number else "" if finite else FINITE[whole]
                yield f"{name} is {value!r}; it must be {kind_of}{limit}"
    elif origin is Literal:
        if value not in parts:
            yield f"unknown {name} {value!r}{did_you_mean(str(value), parts)}; choose from {', '.join(map(str, parts))}"
    elif origin is tuple:
        if not isinstance(value, tuple):
            yield f"{name} is {value!r}; it must be a list of values"
            return
        same = parts[-1] is Ellipsis
        if not same and len(value) != len(parts):
            yield f"{name} is {value!r}; it must be {len(parts)} values"
            return
        for part, one in zip(parts[:1] * len(value) if same else parts, value, strict=True):
            yield from wrong(part, one, name)
    elif hint in KINDS and not _is_of(hint, value):
        yield f"{name} is {value!r}; it must be {KINDS[hint]}"


#: What a number is not that no range holds, by whether it is a whole one.
FINITE = {False: "a finite number ", True: "a number below 2^63, "}
#: Types whose values are checked though no range is declared.
KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _is_of(kind: type, value: object) -> bool:
    if kind in (int, float):
        return not isinstance(value, bool) and isinstance(value, Integral if kind is int else Real)
    return isinstance(value, kind)


def _finite(value: Any) -> bool:
    """Whole numbers may be too large for a float, and none of a study is."""
    return abs(int(value)) < 2**63 if isinstance(value, Integral) else math.isfinite(value)

"""The canonical JSON of a recipe, and its hash. A value whose text could differ between two processes is an error."""

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from storage.errors import UserError

T = TypeVar("T")
HEX_DIGITS = 16


class Ruled:
    """Base of dataclasses whose fields select versioned rules. A new version of such a rule changes fingerprints."""

    __slots__ = ()

    def versions(self) -> Mapping[str, int | str]:
        """Return the versions of the selected rules, without built-in rules of version 1."""
        return {}


class Ambiguous(TypeError):
    """A value without a unique text. Two processes could give it different fingerprints."""


def canonical(value: object) -> object:
    """Return a value as canonical JSON: tuples become lists, dataclasses tagged dicts, and enums their value.

    Fields of a dataclass at their declared default are left out, so that a new field changes no existing fingerprint.
    Labels (fields with `compare=False`) are left out too. A default from a factory always stays.

    >>> canonical({"b": (1, 2.0), "a": None})
    {'a': None, 'b': [1, {'float': '2.0'}]}
    """
    return _spelt(value, whole=False)


def recorded(value: object) -> object:
    """Return the canonical form with all fields, also defaults and labels. Manifests contain this form."""
    return _spelt(value, whole=True)


def is_default(value: object, default: object) -> bool:
    """Return whether a value is the declared default. As in canonical JSON, 0 is not 0.0, and 1 is not True.

    >>> is_default(0.0, 0.0), is_default(0, 0.0)
    (True, False)
    """
    return default is not dataclasses.MISSING and _text(_spelt(value, False)) == _text(_spelt(default, False))


def _spelt(value: object, whole: bool) -> object:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return _spelt(value.value, whole)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Ambiguous(f"a recipe cannot hold the number {value!r}")
        return {"float": repr(float(value))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: (f, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        kept = {
            name: _spelt(part, whole)
            for name, (f, part) in fields.items()
            if whole or (f.compare and not is_default(part, f.default))
        }
        ruled = dict(value.versions()) if isinstance(value, Ruled) else {}
        return {"is": type(value).__name__, **kept, **({"versions": _spelt(ruled, whole)} if ruled else {})}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise Ambiguous(f"keys of a mapping in a recipe must be text, found {sorted(map(repr, value))[:3]}")
        return {key: _spelt(value[key], whole) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_spelt(item, whole) for item in value]
    if isinstance(value, Path):
        raise Ambiguous(f"path {value} in a recipe: a place does not identify content; use the file's digest")
    raise Ambiguous(f"{type(value).__name__} has no canonical form in a recipe: {value!r:.80}")


@overload
def restored(kind: type[T], value: Any) -> T: ...
@overload
def restored(kind: Any, value: Any) -> Any: ...
def restored(kind: Any, value: Any) -> Any:
    """Return a value of type `kind` from its canonical form. Raise UserError if the form belongs to another type.

    >>> restored(tuple[float, ...], canonical((1.0, 2.5)))
    (1.0, 2.5)
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else restored(next(part for part in parts if part is not type(None)), value)
    try:
        if dataclasses.is_dataclass(kind):
            hints = get_type_hints(kind)
            given = {
                f.name: restored(hints[f.name], value[f.name]) for f in dataclasses.fields(kind) if f.name in value
            }
            return kind(**given)  # type: ignore[operator]
        if kind is float:
            return float(value["float"])
        if (kind is str and not isinstance(value, str)) or (origin is tuple and not isinstance(value, list)):
            raise TypeError(f"found {type(value).__name__}")
        if origin is tuple:
            inner = parts[:1] * len(value) if parts[-1:] == (...,) else parts
            return tuple(restored(part, item) for part, item in zip(inner, value, strict=True))
        return kind(value) if isinstance(kind, type) and issubclass(kind, enum.Enum) else value
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"this version cannot read a stored recipe: it has no valid {getattr(kind, '__name__', kind)} ({error})"
        ) from None


def fingerprint(value: object) -> str:
    """Return 16 hex digits of sha256 over canonical JSON. One in 10^7 stores of a million artifacts has a collision."""
    return hashlib.sha256(_text(canonical(value)).encode()).hexdigest()[:HEX_DIGITS]


def _text(form: object) -> str:
    return json.dumps(form, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def derived_seed(*parts: object) -> int:
    """Return a 31-bit seed that depends only on the parts, and is the same on every machine.

    >>> derived_seed(0, "p1", 3) == derived_seed(0, "p1", 3) != derived_seed(0, "p1", 4)
    True
    """
    return int(fingerprint(list(parts)), 16) & 0x7FFFFFFF


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()

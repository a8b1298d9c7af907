"""Tables of a study as the types of its fields: pydantic checks them, and each mistake has the path of its field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from storage.errors import UserError, did_you_mean
from tasks.domain.ranges import COLLECT, sentence

T = TypeVar("T")
Path = tuple[str, ...]
Tables = Mapping[str, Any]
#: What stands for None, which TOML has no word for.
NONE = "none"
#: Fields of a study that are labels or made of other tables.
HIDDEN = ("name", "purpose", "title", "about", "own")
#: Fields by the names that TRL and verl give them.
ELSEWHERE = {
    "lr": "learning_rate",
    "beta": "kl_weight",
    "kl_coef": "kl_weight",
    "kl_loss_coef": "kl_weight",
    "num_generations": "group_size",
    "max_completion_length": "max_tokens",
    "max_response_length": "max_tokens",
    "max_steps": "steps",
    "eval_steps": "eval_every",
    "lora_r": "lora_rank",
    "per_device_train_batch_size": "groups_per_step",
    "train_batch_size": "groups_per_step",
}


class Fault(NamedTuple):
    """A mistake. path: of the field, from the study's own fields down."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        path = ".".join(word if word.isprintable() else repr(word) for word in self.path)
        return f"{path}: {self.sentence}" if path else self.sentence


def validated(kind: type[T], table: object, path: Path, faults: list[Fault], written: object = None) -> T | None:
    """Return the record of a table; None if something is wrong, which is added to faults. written: the part of the
    table that the user wrote, if it is not all of it."""
    try:
        return _adapter(kind).validate_python(table, context=COLLECT)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            faults.append(_fault(kind, one, table, path, table if written is None else written))
        return None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def _fault(kind: type, error: ErrorDetails, table: object, path: Path, written: object) -> Fault:
    within, words = _names(error["loc"], table), sentence(error)
    if error["type"] == "unexpected_keyword_argument":
        record = _record_at(kind, error["loc"][:-1])
        known = [f.name for f in fields(record) if f.name not in HIDDEN]
        words += _elsewhere(record, within[-1]) or did_you_mean(within[-1], known)
        words += f" (fields here: {', '.join(known)})"
    if error["type"] == "mistake":  # of fields that do not go together: told at one that the user wrote
        for name in within:
            written = written.get(name) if isinstance(written, Mapping) else None
        named = [name for name in written if re.search(rf"\b{name}\b", words)] if isinstance(written, Mapping) else []
        within += tuple(named[:1])
    return Fault((*path, *within), words)


def _names(loc: Sequence[str | int], table: Any) -> Path:
    """Return the path of an error by names: places among named tables have the table's name, others count from 1. An
    element of a list of values has the path of the list."""
    path: list[str] = []
    for part in loc:
        if isinstance(table, Mapping):
            part = part if isinstance(part, str) else list(table)[part]
            table = table.get(part)
            path.append(part)
        elif (
            isinstance(part, int) and isinstance(table, list) and part < len(table) and isinstance(table[part], Mapping)
        ):
            table = table[part]
            path.append(str(part + 1))
    return tuple(path)


def _record_at(kind: type, loc: Sequence[str | int]) -> Any:
    for name in loc:
        kind = _record(get_type_hints(kind)[name]) if isinstance(name, str) else kind
    return kind


def _record(hint: Any) -> Any:
    """The record that a field holds, or holds several of."""
    return hint if is_dataclass(hint) else next((found for part in get_args(hint) if (found := _record(part))), None)


def _elsewhere(kind: type, name: str) -> str:
    """A hint to the tables below that have the field."""
    name = ELSEWHERE.get(name, name)
    found = [name] if name in get_type_hints(kind) else list(_paths(kind, name))
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _paths(kind: type, name: str, within: str = "") -> Iterator[str]:
    for field, hint in get_type_hints(kind).items():
        if within and field == name:
            yield within + name
        elif is_dataclass(hint):
            yield from _paths(hint, name, f"{within}{field}.")  # type: ignore[arg-type]


def spelt(value: Any) -> Any:
    """Return a value as a file writes it: records as tables, several that have names by name."""
    if is_dataclass(value):
        return {f.name: spelt(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and value and hasattr(value[0], "name"):
        return {one.name: without_name(one) for one in value}
    if isinstance(value, tuple):
        return [spelt(one) for one in value]
    return NONE if value is None else value


def without_name(record: Any) -> dict[str, Any]:
    return {name: value for name, value in spelt(record).items() if name != "name"}


def merged(old: Any, new: Any) -> Any:
    """
    >>> merged({"steps": 3, "pool": {"seed": 1}}, {"pool": {"limit": 2}})
    {'steps': 3, 'pool': {'seed': 1, 'limit': 2}}
    """
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{name: merged(old.get(name), value) for name, value in new.items()}}


def chosen(names: object, known: Tables, path: Path, faults: list[Fault]) -> dict[str, Any]:
    """Return of the known tables those that a list names."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        where = ".".join(path)
        faults.append(Fault(path, f"{names!r} is neither a list of names nor tables [{where}.NAME]"))
        return {}
    for name in names:
        if name not in known:
            words = f"unknown {path[-1].removesuffix('s')} '{name}'{did_you_mean(name, known)}"
            faults.append(Fault(path, f"{words} (known: {', '.join(known) or 'none'})"))
        elif names.count(name) > 1:
            faults.append(Fault(path, f"{name} stands there more than once"))
    return {name: known[name] for name in names if name in known}


def flat(table: Tables, within: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its path; an empty table is a value."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def nested(values: Tables) -> dict[str, Any]:
    """The inverse of flat. Errors: UserError for a path through the value of another.

    >>> nested({"pool.seed": 1, "pool.limit": 2})
    {'pool': {'seed': 1, 'limit': 2}}
    """
    made: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        table = made
        for word in above:
            table = table.setdefault(word, {})
            if not isinstance(table, dict):
                raise UserError(f"{path}: '{word}' has no fields of its own")
        table[name] = value
    return made

"""Convert the tables of a study to typed fields. pydantic checks them, and each mistake has the path of its field and
its place in the file or on the command line."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from storage.errors import UserError, did_you_mean, printable
from tasks.domain.ranges import COLLECT, check_distinct, sentence

T = TypeVar("T")
Path = tuple[str, ...]
Tables = Mapping[str, Any]
#: How TOML files write None, for which TOML has no value.
NONE = "none"
#: Fields of a study that are labels, or that come from other tables.
HIDDEN = ("name", "purpose", "title", "about", "own")
#: The names of TRL and verl for settings → our names.
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
    """A mistake in a study. path: of the field, relative to the study."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        return printable(": ".join(filter(None, (".".join(self.path), self.sentence))))


class Written(NamedTuple):
    """The place of a study's settings: a file, its text, a question in it, and `--set`."""

    file: str = ""
    text: str = ""
    question: str = ""
    settings: tuple[str, ...] = ()

    def sentence(self, fault: Fault) -> str:
        """Return a mistake with the place of its field: a `--set`, or a line of the file.

        >>> mine = Written("mine.toml", "[pool]\\nsources = ['a.jsonl']\\n", settings=("model=mine",))
        >>> mine.sentence(Fault(("pool", "sources"), "none")), mine.sentence(Fault(("model",), "no folder"))
        ('mine.toml, line 2: pool.sources: none', '--set model: no folder')
        """
        if ".".join(fault.path) in {setting.partition("=")[0].strip() for setting in self.settings}:
            return f"--set {fault}"
        tables = [("questions", self.question), ("matrix",), ()] if self.question else [()]
        lines = (line_of(self.text, (*table, *fault.path), len(table)) for table in tables)
        line = next(filter(None, lines), None) if self.text else None
        return f"{self.file}, line {line}: {fault}" if line else f"{self.file}: {fault}".removeprefix(": ")

    def refuse(self, faults: Iterable[Fault]) -> NoReturn:
        """Raise UserError whose message has all mistakes, one per line."""
        raise UserError("\n".join(dict.fromkeys(map(self.sentence, faults))))


def line_of(text: str, path: Path, least: int = 0) -> int | None:
    """Return the line of a field, or of the nearest table above it; None if its path has `least` names or fewer.

    >>> line_of("# mine\\n[training]\\n\\nsteps = 3\\n", ("training", "steps"))
    4
    """
    whole = tomllib.loads(text)
    while path and not _has(whole, path):
        path = path[:-1]
    if len(path) <= least:
        return None
    lines, without = text.split("\n"), 0
    for n in range(len(lines)):
        try:
            found = tomllib.loads("\n".join(lines[:n]))
        except tomllib.TOMLDecodeError:  # inside a text or list of several lines
            continue
        if _has(found, path):
            break
        without = n
    return without + 1


def _has(table: Any, path: Path) -> bool:
    for name in path:
        if isinstance(table, list) and name.isdecimal():  # the number of a table in a list
            table = {str(place): one for place, one in enumerate(table, 1)}
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


@contextmanager
def collected(faults: list[Fault], *path: str) -> Iterator[None]:
    """Catch the block's errors, and add them to faults as mistakes of the field with this path."""
    try:
        yield
    except UserError as error:
        faults.append(Fault(path, str(error)))


def validated(kind: type[T], table: object, path: Path, faults: list[Fault]) -> T | None:
    """Return the record of a table. If there is a mistake, add it to faults and return None."""
    try:
        return _adapter(kind).validate_python(table, context=COLLECT)
    except ValidationError as error:
        faults += [_fault(kind, one, table, path) for one in error.errors(include_url=False)]
        return None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def _fault(kind: type, error: ErrorDetails, table: Any, path: Path) -> Fault:
    """Return the mistake that a pydantic error describes. In the path of the mistake, the position in a list of named
    tables becomes the table's name. Positions in other lists count from 1. An element of a list of values has the path
    of the list."""
    within, record, words = list(path), kind, sentence(error)
    for part in (part for part in error["loc"] if part != "[key]"):
        hints = get_type_hints(record)
        record = (_record(hints[part]) if isinstance(part, str) and part in hints else None) or record
        if isinstance(table, Mapping):
            name = part if isinstance(part, str) else list(table)[part]
            table = table.get(name)
            within.append(name)
        elif isinstance(part, int) and isinstance(table, list) and isinstance((table[part:] or [None])[0], Mapping):
            table = table[part]
            within.append(str(part + 1))
    if error["type"] == "unexpected_keyword_argument":
        known = [f.name for f in fields(record) if f.name not in HIDDEN]
        name = ELSEWHERE.get(within[-1], within[-1])
        found = [name] if name in known else list(_paths(record, name))
        hint = f"; did you mean {' or '.join(found)}?" if found else did_you_mean(name, known)
        words += hint or f" (fields here: {', '.join(known)})"
    return Fault(tuple(within), words)


def _record(hint: Any) -> Any:
    """Return the type of record of a field, or of its elements."""
    return hint if is_dataclass(hint) else next((found for part in get_args(hint) if (found := _record(part))), None)


def _paths(record: type, name: str, within: str = "") -> Iterator[str]:
    """Return the paths of fields with this name in nested tables."""
    for field, hint in get_type_hints(record).items():
        if within and field == name:
            yield within + name
        elif is_dataclass(hint):
            yield from _paths(hint, name, f"{within}{field}.")  # type: ignore[arg-type]


def spelt(value: Any) -> Any:
    """Return a value as in a file: records as tables, and several named records by name."""
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


def named(given: object, old: Tables, known: Tables, path: Path, faults: list[Fault]) -> Tables:
    """Return the tables of a study that have names: those that a list chooses, or the old ones changed by tables."""
    if isinstance(given, Mapping):
        return merged(dict(old) | {name: known[name] for name in given if name in known and name not in old}, given)
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        faults.append(Fault(path, f"{given!r} is neither a list of names nor tables [{'.'.join(path)}.NAME]"))
        return {}
    known = {**known, **old}
    faults += unknown(path, path[-1].removesuffix("s"), given, known)
    with collected(faults, *path):
        check_distinct(given)
    return {name: known[name] for name in given if name in known}


def unknown(path: Path, what: str, names: Iterable[str], known: Iterable[str]) -> Iterator[Fault]:
    for name in (name for name in names if name not in known):
        words = f"unknown {what} '{name}'{did_you_mean(name, known)}"
        yield Fault(path, f"{words} (known: {', '.join(known) or 'none'})")


def flat(table: Tables, within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its path. An empty table counts as a value."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def apart(before: Tables, after: Tables) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, by path. A value that one table lacks is None there.

    >>> apart({"pool": {"seed": 1, "limit": 2}}, {"pool": {"seed": 3, "limit": 2}, "arms": ["panel"]})
    {'pool.seed': (1, 3), 'arms': (None, ['panel'])}
    """
    left, right = dict(flat(before)), dict(flat(after))
    paths = dict.fromkeys([*left, *right])
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def nested(values: Tables) -> dict[str, Any]:
    """Return tables from values by path, the inverse of flat. Raise UserError for a value inside another value.

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
                raise UserError(f"{path}: '{word}' is not a table of settings")
        table[name] = value
    return made

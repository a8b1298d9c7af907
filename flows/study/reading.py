"""Values of a study as people write them, in a file or after `--set`, read as the types that are declared with its
fields. Every fault is collected: what is wrong is said as a whole, before anything is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from storage.errors import UserError, did_you_mean
from tasks.domain.ranges import declared, optional, wrong

T = TypeVar("T")
Path = tuple[str, ...]
#: Of a study and of what it defines: it stands in addresses, file names and words of the command line.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
UNNAMED = "is no name, which has letters, digits, dots, dashes and underscores; call it otherwise"
#: What stands for null, which TOML has no word for.
NONE = "none"


class Typed(str):
    """A value as it is typed after `--set field=`."""

    __slots__ = ()


class Fault(NamedTuple):
    """One thing that is wrong. path: of the field, from the study's own fields down."""

    path: Path
    said: str

    def __str__(self) -> str:
        path = ".".join(word if word.isprintable() else repr(word) for word in self.path)
        return f"{path}: {self.said}" if path else self.said


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found wrong so far. known: records that may be named where a field holds several, by the field's name.
    hidden: fields that nobody writes, by record."""

    known: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    hidden: Mapping[type, frozenset[str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def record(self, kind: type[T], given: object, old: T | None, path: Path = ()) -> T | None:
        """The record with what is given in place of `old`'s fields; null where something is wrong."""
        if not isinstance(given, Mapping):
            return self.refuse(path, f"{given!r} is no table of fields ({', '.join(self._names(kind))})")
        before, hints, changes = len(self.faults), declared(kind), {}
        for name, value in given.items():
            if name not in self._names(kind):
                known = self._names(kind)
                hint = _elsewhere(kind, name) or did_you_mean(name, known)
                self.refuse((*path, name), f"no field '{name}'{hint} (fields here: {', '.join(known)})")
                continue
            changes[name] = self.value(hints[name], value, getattr(old, name, None), (*path, name))
        if old is None:
            needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]  # type: ignore[arg-type]
            if lacking := [name for name in needed if name not in given]:
                self.refuse(path, f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing")
        return None if len(self.faults) > before else self.made(kind, changes, old, path)

    def made(self, kind: type[T], changes: Mapping[str, Any], old: T | None, path: Path) -> T | None:
        """What goes together is said at the field that the sentence names."""
        try:
            return kind(**changes) if old is None else replace(old, **changes)  # type: ignore[type-var]
        except UserError as error:
            at = next((name for name in changes if re.search(rf"\b{name}\b", str(error))), None)
            return self.refuse((*path, at) if at else path, str(error))

    def value(self, hint: Any, given: object, old: Any, path: Path) -> Any:
        kind, may_be_null = optional(hint)
        if is_dataclass(kind):
            assert isinstance(kind, type)
            return self.record(kind, given, old, path)
        if (several := _records(kind)) is not None:
            return self.several(several, given, old or (), path)
        if isinstance(given, Mapping):
            return self.refuse(path, f"'{path[-1]}' has no fields of its own")
        if may_be_null and str(given).lower() == NONE:
            return None
        try:
            value = typed(kind, given) if isinstance(given, Typed) else written(kind, given)
        except ValueError:
            return self.refuse(path, f"'{given}' cannot be read; now it is {old!r}")
        for said in wrong(hint, value, path[-1]):
            self.refuse(path, said)
        return value

    def several(self, kind: type[T], given: object, old: tuple[T, ...], path: Path) -> tuple[T, ...]:
        """Records by name: a list chooses among those that are known, tables change and add."""
        if all(f.name != "name" for f in fields(kind)):  # type: ignore[arg-type]
            return self._listed(kind, given, path)
        by_name: dict[str, Any] = {one.name: one for one in (*self.known.get(path[-1], ()), *old)}  # type: ignore[attr-defined]
        if isinstance(given, Mapping):
            changed = {name: self.named(kind, name, table, by_name.get(name), path) for name, table in given.items()}
            kept = {one.name: one for one in old}  # type: ignore[attr-defined]
            return tuple(one for one in (kept | changed).values() if one is not None)
        names = parts_of(given) if isinstance(given, Typed) else given
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.refuse(path, f"{given!r} is neither a list of names nor tables [{'.'.join(path)}.NAME]")
            return old
        for name in (name for name in names if name not in by_name):
            what = path[-1].removesuffix("s")
            hint = did_you_mean(name, by_name)
            self.refuse(path, f"unknown {what} '{name}'{hint} (known: {', '.join(by_name) or 'none'})")
        for name in twice(names):
            self.refuse(path, f"{path[-1]}: {name} stands there more than once")
        return tuple(by_name[name] for name in dict.fromkeys(names) if name in by_name)

    def _listed(self, kind: type[T], given: object, path: Path) -> tuple[T, ...]:
        if not isinstance(given, list):
            self.refuse(path, f"{given!r} is no list of tables, written [[{'.'.join(path)}]]")
            return ()
        made = [self.record(kind, one, None, (*path, str(place))) for place, one in enumerate(given, 1)]
        return tuple(one for one in made if one is not None)

    def named(self, kind: type[T], name: str, table: object, old: T | None, path: Path) -> T | None:
        """The record of table [path.NAME]."""
        if not isinstance(table, Mapping):
            return self.refuse((*path, name), f"{table!r} is no table of fields ({', '.join(self._names(kind))})")
        if "name" in table:
            return self.refuse((*path, name, "name"), f"'{name}' is its name already, from the table's title")
        return self.record(kind, {"name": name, **table}, old, (*path, name))

    def refuse(self, path: Path, said: str) -> None:
        self.faults.append(Fault(path, said))

    def _names(self, kind: type) -> list[str]:
        return [f.name for f in fields(kind) if f.name not in self.hidden.get(kind, ())]  # type: ignore[arg-type]


def without(said: Mapping[str, Any], faults: Sequence[Fault], above: Path = ()) -> dict[str, Any]:
    """What is said without the fields, below `above`, that something is wrong with.

    >>> without({"steps": 3, "pool": {"seed": 1, "limit": "x"}}, [Fault(("pool", "limit"), "")])
    {'steps': 3, 'pool': {'seed': 1}}
    """
    paths = [fault.path for fault in faults]
    left = {name: value for name, value in said.items() if (*above, name) not in paths}
    return {n: without(v, faults, (*above, n)) if isinstance(v, Mapping) else v for n, v in left.items()}


def twice(values: Sequence[Any]) -> list[Any]:
    """
    >>> twice([1, 2, 1, [3], [3]])
    [1, [3]]
    """
    return [one for nth, one in enumerate(values) if values.index(one) == nth and values.count(one) > 1]


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


def _elsewhere(kind: type, name: str) -> str:
    """A hint to the tables below that have the field."""
    name = ELSEWHERE.get(name, name)
    found = [name] if name in declared(kind) else list(_paths(kind, name))
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _paths(kind: type, name: str, within: str = "") -> Iterator[str]:
    for field_name, hint in declared(kind).items():
        if within and field_name == name:
            yield within + name
        elif is_dataclass(below := optional(hint)[0]):
            yield from _paths(below, name, f"{within}{field_name}.")  # type: ignore[arg-type]


def _records(hint: Any) -> type | None:
    """The record of which a field holds several; null for any other field."""
    parts = get_args(hint)
    return parts[0] if get_origin(hint) is tuple and is_dataclass(parts[0]) else None  # type: ignore[return-value]


def written(hint: Any, given: object) -> object:
    """A value of a TOML file as its field's type holds it: a list is a tuple, and 1 a number as much as 1.0.

    >>> written(tuple[float, ...], [1, 0.5]), written(int, 1.5)
    ((1.0, 0.5), 1.5)
    """
    hint, _ = optional(hint)
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return written(parts[0], given)
    if get_origin(hint) is tuple and isinstance(given, list):
        same = parts[-1] is Ellipsis
        return tuple(written(parts[0 if same else min(i, len(parts) - 1)], one) for i, one in enumerate(given))
    if hint is float and isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**63:
        return float(given)
    return given


def typed(hint: Any, text: str) -> object:
    """A value as it is typed. Errors: ValueError for what is none of the type.

    >>> typed(tuple[int, ...], "(1, 2)"), typed(bool, "true"), typed(tuple[str, ...], "panel,thinking")
    ((1, 2), True, ('panel', 'thinking'))
    """
    hint, _ = optional(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return typed(parts[0], text)
    if origin is tuple:
        same, found = parts[-1] is Ellipsis, parts_of(text)
        return tuple(typed(parts[0 if same else min(i, len(parts) - 1)], one) for i, one in enumerate(found))
    if hint is bool:
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else text
    if origin is Literal or hint is str:
        return text
    try:
        return hint(text)
    except (ValueError, OverflowError):
        return float(text)


def parts_of(text: str) -> list[str]:
    """
    >>> parts_of("[1, 2,]"), parts_of(""), parts_of("a:b=' '")
    (['1', '2'], [], ["a:b=' '"])
    """
    listed = text.strip()
    if listed[:1] in ("[", "("):
        listed = listed[1:].rstrip("])")
    return [_unquoted(part.strip()) for part in listed.split(",") if part.strip()]


def _unquoted(text: str) -> str:
    """Without the quotes that it stands in; those of a part of it stay."""
    return text.strip("'\"") if text[:1] in ("'", '"') else text


def spelt(value: Any) -> Any:
    """A value as a file writes it."""
    if is_dataclass(value):
        return {f.name: spelt(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        if value and hasattr(value[0], "name"):
            return {
                one.name: {f.name: spelt(getattr(one, f.name)) for f in fields(one) if f.name != "name"}
                for one in value
            }
        return [spelt(one) for one in value]
    return NONE if value is None else value

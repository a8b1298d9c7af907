"""The settings of a study: applied from `--set path.to.field=value` and the options that abbreviate one, and listed
with range, default and description for `varband study settings` and the docs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from flows.study.files import changed, fields_of, tables_of
from flows.study.objectives import SHARED
from flows.study.profile import Profile
from flows.study.profiles import BENCHMARKS
from flows.study.reading import HIDDEN, NONE, Fault, flat, nested
from flows.study.scaffolds import ArmTable
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.ranges import MOST
from tasks.domain.scaffolds import Example, Message, Scaffold

#: Options of the command line and of forms, and the setting that each is short for.
SHORT = {
    "arms": "arms",
    "seeds": "seeds",
    "pools": "pool.sources",
    "limit": "pool.limit",
    "model": "model",
    "engine": "hardware.engine",
    "without": "hardware.without",
    "anyway": "gate.anyway",
    "tracking": "tracking",
}


def short_settings(options: Mapping[str, object]) -> tuple[str, ...]:
    """The settings of options that are given.

    >>> short_settings({"arms": ("panel", "thinking"), "limit": 3, "seeds": (), "engine": "auto"})
    ('arms=panel,thinking', 'pool.limit=3')
    """
    given = {SHORT[name]: value for name, value in options.items() if value not in (None, False, (), [], "auto")}
    words = {path: value if isinstance(value, list | tuple) else [value] for path, value in given.items()}
    return tuple(f"{path}={','.join('true' if v is True else str(v) for v in vs)}" for path, vs in words.items())


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings. Lessons, benchmarks and objectives are chosen by name; `benchmarks=[]`
    means none. Errors: Raise UserError naming every unknown field and every invalid value.

    >>> from flows.study.profiles import DEMO
    >>> overridden(DEMO, ["screening.group_size=16"]).screening.group_size
    16
    >>> overridden(DEMO, ["screening.adaptive=true"]).screening.adaptive
    True
    """
    values: dict[str, str] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write field=value, for example training.learning_rate=1e-3")
        values[path.strip()] = text.strip()
    old, faults = dict(flat(fields_of(profile) | {"objectives": [], "benchmarks": [], "lessons": []})), list[Fault]()
    typed = {path: typed_value(text, old.get(path)) for path, text in values.items()}
    arms = {path: value for path, value in typed.items() if path.startswith("arms.")}
    given = nested({path: value for path, value in typed.items() if path not in arms})
    study = changed(profile, given, faults, benchmarks=BENCHMARKS, arms=nested(arms).get("arms"))
    if study is None:
        found = (f"--set {one}" if ".".join(one.path) in values else str(one) for one in faults)
        raise UserError("".join(c if c.isprintable() else " " for c in "; ".join(dict.fromkeys(found))))
    return study


def typed_value(text: str, old: object = None) -> Any:
    """Return the value of text that was typed after `--set field=`: as TOML has it, else the text; lists also without
    brackets. old: the present value of the field.

    >>> typed_value("(1, 2)", [0]), typed_value("true", False), typed_value("panel,thinking", []), typed_value("3", "m")
    ([1, 2], True, ['panel', 'thinking'], '3')
    """
    if isinstance(old, list) or text[:1] in ("[", "("):
        return [typed_value(part.strip()) for part in text.strip("[]()").split(",") if part.strip()]
    if isinstance(old, str) and old != NONE:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def settable(study: Profile) -> Iterator[str]:
    """Return every path that a setting of this study may begin with: its fields, and those of its named tables.

    >>> from flows.study.profiles import DEMO
    >>> sorted(path for path in settable(DEMO) if path.endswith((".steps", "thinking.model")))
    ['arms.thinking.model', 'training.steps']
    """
    several = ("arms", "lessons", "benchmarks", "objectives")
    learner = [f.name for f in fields(LearnerConfig) if f.name not in SHARED]
    objectives = {one.name: dict.fromkeys(learner) for one in study.objectives}
    arms = {name: dict.fromkeys(("trained_as", "model", "adapter")) for name in study.arms}
    tables = {**tables_of(study), **fields_of(study), "objectives": objectives, "arms": arms}
    yield from several
    yield from (path for path, _ in flat(tables) if path not in several)


Schema = Mapping[str, Any]


class Setting(NamedTuple):
    """A setting as it is listed. values: type and range, in words. default: as TOML; empty if the setting is
    required."""

    name: str
    values: str
    default: str
    meaning: str


class Section(NamedTuple):
    """The settings of one record. tables: tables of a study file with this section, such as `lessons.NAME.training`;
    empty for the study itself."""

    tables: tuple[str, ...]
    meaning: str
    settings: tuple[Setting, ...]


def sections() -> list[Section]:
    """Return the settings of a study, its own first and then those of its tables, each record once."""
    schema = TypeAdapter(Profile).json_schema()
    records: dict[str, list[str]] = {}
    _collect(schema, schema["$defs"], "", records)
    own = {"scaffolds.NAME": Scaffold, "scaffolds.NAME.messages": Message, "scaffolds.NAME.examples": Example}
    found = [Section(("",), _words(schema), tuple(_settings(schema, HIDDEN)))]
    for table, record in ({"arms.NAME": ArmTable} | own).items():
        schema_of = TypeAdapter(record).json_schema()
        found.append(Section((table,), _words(schema_of), tuple(_settings(schema_of, ("name",)))))
    for name, tables in records.items():
        record, of_many = schema["$defs"][name], tables[0].endswith(".NAME")
        settings = tuple(_settings(record, ("name",) if of_many else ()))
        found.append(Section(tuple(sorted(tables, key=lambda table: table.count("."))), _words(record), settings))
    return found


def _collect(record: Schema, known: Schema, prefix: str, records: dict[str, list[str]]) -> None:
    """Add the records below a record, by type name."""
    for field, schema in record["properties"].items():
        several = "items" in schema and "$ref" in schema["items"]
        if field in HIDDEN or not ("$ref" in schema or several):
            continue
        name = (schema["items"] if several else schema)["$ref"].rpartition("/")[2]
        table = f"{prefix}{field}" + (".NAME" if several else "")
        records.setdefault(name, []).append(table)
        _collect(known[name], known, f"{table}.", records)


def _settings(record: Schema, hidden: Iterable[str]) -> Iterator[Setting]:
    for name, schema in record["properties"].items():
        if name not in hidden and "$ref" not in schema:
            default = _value(schema["default"]) if "default" in schema else ""
            yield Setting(name, _values(schema), default, _words(schema))


def _words(schema: Schema) -> str:
    return " ".join(schema["description"].split())


def _value(value: Any) -> str:
    return '"none"' if value is None else f"{value:g}" if isinstance(value, float) else json.dumps(value)


#: Keywords of JSON schema that bound a number, in words.
BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}


def _values(schema: Schema) -> str:
    """
    >>> _values({"type": "integer", "minimum": 1, "maximum": 100000})
    'integer, at least 1'
    >>> _values({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]})
    'number, above 0, or none'
    """
    if "anyOf" in schema:
        return ", or ".join(_values(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        return f"list of {'names' if '$ref' in items else _values(items)}"
    bounds = [f"{words} {schema[name]:,}" for name, words in BOUNDS.items() if schema.get(name, MOST) < MOST]
    kind = {"null": "none", "boolean": "`true`, `false`"}.get(schema["type"]) or schema["type"]
    return ", ".join([kind, *bounds])


def page(found: Iterable[Section]) -> str:
    """Return the settings in Markdown, one table per section."""
    lines: list[str] = []
    for section in found:
        title = ", ".join(f"`[{table}]`" for table in section.tables if table) or "The study itself"
        lines += [f"## {title}", "", section.meaning, ""]
        if section.settings:
            lines += ["| setting | values | default | meaning |", "|---|---|---|---|"]
        for one in section.settings:
            lines.append(f"| `{one.name}` | {one.values} | {one.default and f'`{one.default}`'} | {one.meaning} |")
        lines.append("")
    return "\n".join(lines)

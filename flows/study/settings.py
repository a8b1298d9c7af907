"""The settings of a study. `--set path.to.field=value` sets any of them, and short options set some. `varband study
settings` and the docs list them with range, default and description."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from flows.study.files import changed, fields_of
from flows.study.profile import Profile
from flows.study.profiles import BENCHMARKS
from flows.study.reading import HIDDEN, NONE, Fault, Written, flat, nested
from flows.study.scaffolds import ArmTable
from storage.errors import UserError
from tasks.domain.ranges import MOST
from tasks.engines.hardware import ENGINES
from tasks.engines.trackers import TRACKERS


class Short(NamedTuple):
    """An option of the command line that abbreviates a setting."""

    option: str
    setting: str
    meaning: str
    several: bool = False


#: The short options, by their names in the functions of the command line and in forms.
SHORT = {
    "arms": Short("--arms", "arms", "Arms to compare, comma-separated."),
    "seeds": Short("--seeds", "seeds", "Training seeds, comma-separated; '' skips training."),
    "pools": Short("--pool", "pool.sources", "Problems: a file, a named set, or NAME@COMMIT on the hub.", True),
    "limit": Short("--limit", "pool.limit", "Use this many problems, chosen at random with the seed pool.split_seed."),
    "model": Short(
        "--model",
        "model",
        "Base model: a folder, OWNER/NAME@COMMIT on the hub, or sha256:… of a model on another machine.",
    ),
    "engine": Short("--engine", "hardware.engine", f"Sampling engine: {', '.join(ENGINES)}."),
    "without": Short(
        "--without", "hardware.without", "Skip artifacts of this kind, and artifacts that need them.", True
    ),
    "anyway": Short("--anyway", "gate.anyway", "Train even if the screening found too few usable problems."),
    "tracking": Short("--track", "tracking", f"Experiment tracker that follows the run: {', '.join(TRACKERS)}.", True),
}


def short_settings(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the settings that these short options set.

    >>> short_settings({"arms": ("panel", "thinking"), "limit": 3, "seeds": (), "engine": "auto"})
    ('arms=panel,thinking', 'pool.limit=3')
    """
    given = {name: value for name, value in options.items() if value not in (None, False, (), [], "auto")}
    lists = {name: value if isinstance(value, list | tuple) else [value] for name, value in given.items()}
    words = {name: ",".join("true" if one is True else str(one) for one in value) for name, value in lists.items()}
    return tuple(f"{SHORT[name].setting}={text}" for name, text in words.items())


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings. Lessons, benchmarks and objectives are chosen by name; `benchmarks=[]`
    means none. Raise UserError with every unknown field and every invalid value.

    >>> from flows.study.profiles import DEMO
    >>> overridden(DEMO, ["screening.group_size=16"]).screening.group_size
    16
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
        Written(settings=tuple(settings)).refuse(faults)
    return study


def typed_value(text: str, old: object = None) -> Any:
    """Return the value of a text after `--set field=`: as TOML reads it, or else the text. Lists may lack brackets.
    old: the current value of the field.

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


class Setting(NamedTuple):
    """A setting in a list. tables: those of a study file that may contain it; "" is the file itself. values: type and
    range, as text. default: as TOML; empty if the setting is required."""

    tables: tuple[str, ...]
    name: str
    values: str
    default: str
    meaning: str

    @property
    def names(self) -> list[str]:
        return [f"{table}.{self.name}".removeprefix(".") for table in self.tables]


def listed() -> Iterator[Setting]:
    """Yield the settings of a study: first its own, and then those of its tables, each record once."""
    schema = TypeAdapter(Profile).json_schema()
    known = {"Profile": schema, "ArmTable": TypeAdapter(ArmTable).json_schema(), **schema["$defs"]}
    tables: dict[str, list[str]] = {}

    def walk(record: str, table: str) -> None:
        tables.setdefault(record, []).append(table)
        for field, part in known[record]["properties"].items():
            below = part.get("items", part).get("$ref", "").rpartition("/")[2]
            if below and field not in HIDDEN:
                several = "items" in part and "name" in known[below]["properties"]
                walk(below, f"{table}.{field}".removeprefix(".") + ".NAME" * several)

    for record, table in (("Profile", ""), ("ArmTable", "arms.NAME"), ("Scaffold", "scaffolds.NAME")):
        walk(record, table)
    for record, places in tables.items():
        hidden = HIDDEN if record == "Profile" else ("name",) if places[0].endswith(".NAME") else ()
        for field, part in known[record]["properties"].items():
            if field not in hidden and "$ref" not in part:
                default = _value(part["default"]) if "default" in part else ""
                meaning = " ".join(part["description"].split())
                yield Setting(tuple(sorted(places, key=len)), field, _values(part), default, meaning)


def _value(value: Any) -> str:
    return '"none"' if value is None else f"{value:g}" if isinstance(value, float) else json.dumps(value)


#: The words for JSON schema's limits of a number.
BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}


def _values(schema: Mapping[str, Any]) -> str:
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


def page() -> str:
    """Return the settings in Markdown, one table per record."""
    lines: list[str] = []
    for tables, found in groupby(listed(), key=lambda setting: setting.tables):
        title = ", ".join(f"`[{table}]`" for table in tables if table) or "The study itself"
        lines += [f"## {title}", "", "| setting | values | default | meaning |", "|---|---|---|---|"]
        for one in found:
            lines.append(f"| `{one.name}` | {one.values} | {one.default and f'`{one.default}`'} | {one.meaning} |")
        lines.append("")
    return "\n".join(lines)

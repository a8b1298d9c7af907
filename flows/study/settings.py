"""Every setting of a study with its range, default and meaning, read from the model: for `varband study settings` and
the page of settings in the docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from flows.study.profile import Profile
from flows.study.reading import HIDDEN
from tasks.domain.ranges import MOST

Schema = Mapping[str, Any]


class Setting(NamedTuple):
    """values: type and range, in words. default: as TOML has it; empty where the setting must be given."""

    name: str
    values: str
    default: str
    meaning: str


class Section(NamedTuple):
    """The settings of one record. tables: those of a study's file that hold it, such as `lessons.NAME.training`; empty
    for the study itself."""

    tables: tuple[str, ...]
    meaning: str
    settings: tuple[Setting, ...]


def sections() -> list[Section]:
    """Return the settings of a study, its own first and then those of its tables, each record once."""
    schema = TypeAdapter(Profile).json_schema()
    records: dict[str, list[str]] = {}
    _collect(schema, schema["$defs"], "", records)
    found = [Section(("",), _words(schema), tuple(_settings(schema, HIDDEN)))]
    for name, tables in records.items():
        record, of_many = schema["$defs"][name], tables[0].endswith(".NAME")
        settings = tuple(_settings(record, ("name",) if of_many else ()))
        found.append(Section(tuple(sorted(tables, key=lambda table: table.count("."))), _words(record), settings))
    return found


def _collect(record: Schema, known: Schema, prefix: str, records: dict[str, list[str]]) -> None:
    """Add the tables below a record to records, by the name of their type."""
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
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(schema: Schema) -> str:
    """
    >>> _values({"type": "integer", "minimum": 1, "maximum": 100000})
    'integer, 1 or more'
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
    least, most = schema.get("minimum"), schema.get("maximum")
    most = None if most is not None and most >= MOST else most
    words = [str({"null": "none", "boolean": "`true`, `false`"}.get(schema["type"], schema["type"]))]
    if least is not None and most is not None:
        words.append(f"{_number(least)} to {_number(most)}")
    elif least is not None:
        words.append(f"{_number(least)} or more")
    elif most is not None:
        words.append(f"at most {_number(most)}")
    words += [f"above {_number(schema['exclusiveMinimum'])}"] if "exclusiveMinimum" in schema else []
    words += [f"below {_number(schema['exclusiveMaximum'])}"] if "exclusiveMaximum" in schema else []
    return ", ".join(words)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def page(found: Iterable[Section]) -> str:
    """Return the settings in Markdown, a table a section."""
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

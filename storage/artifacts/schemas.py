"""Notation of schemas: `columns("problem_id str", "year int?")`. A column means the same in every kind."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

TYPES = {
    "str": pa.string(),
    "int": pa.int32(),
    "big": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "ints": pa.list_(pa.int32()),
    "reals": pa.list_(pa.float32()),
}


def columns(*declared: str) -> pa.Schema:
    """Build a schema from `name type` texts, separated by commas; `?` after a type allows null.

    >>> columns("problem_id str, year int?").field("year").nullable
    True
    """
    fields = []
    for text in declared:
        for column in text.split(","):
            name, kind = column.split()
            fields.append(pa.field(name, TYPES[kind.rstrip("?")], nullable=kind.endswith("?")))
    return pa.schema(fields)


def nullable(*declared: str) -> pa.Schema:
    """Build a schema whose columns all allow null; `reason` says why a figure is missing."""
    return pa.schema([field.with_nullable(True) for field in columns(*declared)])


def joined(*schemas: pa.Schema) -> pa.Schema:
    return pa.schema([field for schema in schemas for field in schema])


def differences(schema: pa.Schema, table: pa.Table) -> list[str]:
    """Describe missing and extra columns, wrong types, and nulls that are not allowed.

    >>> differences(columns("k int"), pa.table({"k": ["a"]}))
    ['k is string, not int32']
    """
    found = table.schema
    wrong = [f"{name} is lacking" for name in schema.names if name not in found.names]
    wrong += [f"{name} is no column of it" for name in found.names if name not in schema.names]
    wrong += [f"{name} is there {n} times" for name, n in Counter(found.names).items() if n > 1]
    if wrong:
        return wrong
    for field in schema:
        if found.field(field.name).type != field.type:
            wrong.append(f"{field.name} is {found.field(field.name).type}, not {field.type}")
        elif not field.nullable and table[field.name].null_count:
            wrong.append(f"{field.name} is null in {table[field.name].null_count} rows")
    return wrong

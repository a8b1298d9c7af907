"""The published study's files as tables of this project's kinds. Nothing is filled in: what a file lacks is null.

Names are translated once, here: `uid` is a problem, `variance_band` is `variance`, a `batch` is the number of
updates done before it, and the length columns of the diversity files, called characters in the write-up, are tokens
(their AIME means equal the completion-token means of the token table to the last digit).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from storage.errors import UserError
from storage.sql import answer, connect

Row = dict[str, Any]


def read(path: Path, sql: str, schema: pa.Schema, **given: object) -> pa.Table:
    """Return what a statement makes of one JSON file, `$path`, in a schema; columns that it does not name are null.

    Errors: UserError naming the file: it is no JSON, lacks a field, or has a problem twice.
    """
    connection = connect(threads=1, reads=[path])
    try:
        found = answer(connection, sql, {"path": str(path), **given})
        made = pa.table([_column(found, field) for field in schema], schema=schema)
    except (duckdb.Error, pa.ArrowException) as error:
        raise UserError(f"{path.name}: not the published file: {str(error).splitlines()[0][:200]}") from None
    finally:
        connection.close()
    if "problem_id" in schema.names and len(set(names := made["problem_id"].to_pylist())) != len(names):
        raise UserError(f"{path.name}: a problem occurs twice")
    return made


def _column(found: pa.Table, field: pa.Field) -> Any:
    return found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(len(found), field.type)


def whole(path: Path) -> Any:
    """A file of one JSON value. Errors: UserError naming it."""
    return _parsed(path, _text(path), "")


def rows_of(path: Path) -> list[Row]:
    """Rows of a JSON Lines file. Errors: UserError naming the line that is no JSON."""
    lines = enumerate(_text(path).splitlines(), 1)
    return [_parsed(path, line, f" line {number}") for number, line in lines if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def _parsed(path: Path, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise UserError(f"{path.name}{where}: not JSON; the published file is damaged") from None

"""Arrow tables as CSV, and on a terminal, fitted to its width. In a pipe each row is one whole line, without
colours."""

import os
import re

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli import options
from storage.errors import printable

MAX_ROWS = 1000
#: Longest text on a terminal, in characters. Longer texts are shortened.
LONGEST = 400
#: Texts that users may copy into commands, such as refs or names. They are never wrapped.
WORD = re.compile(r"[\w./:@+-]{1,100}")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d:.+]+")
#: Width of the space between two columns.
RULE = 3


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """Print a table. Long texts are wrapped. A table of single words keeps its width even on a narrower terminal."""
    rows = (table if as_json else table.slice(0, MAX_ROWS)).to_pylist()
    if as_json:
        options.write_json(rows)
        return
    console = Console(highlight=False)
    piped = not console.is_terminal and "COLUMNS" not in os.environ
    grid, least = Table(title=title, show_edge=False, pad_edge=False), 0
    columns = [[_cell(row[name], whole=piped) for row in rows] for name in table.column_names]
    for field, cells in zip(table.schema, columns, strict=True):
        widest = max((cell_len(line) for line in [field.name, *cells]), default=0)
        words = piped or all(map(WORD.fullmatch, cells))
        least += (widest if words else min(widest, 8)) + RULE
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        grid.add_column(printable(field.name), justify="right" if right else "left", overflow="fold", no_wrap=words)
    for cells in zip(*columns, strict=True):
        grid.add_row(*map(Text, cells))
    console.width = max(console.width, least)
    console.print(grid)
    if table.num_rows > MAX_ROWS:
        console.print(f"… {table.num_rows - MAX_ROWS} more rows (use --json for all)")


def _cell(value: object, *, whole: bool) -> str:
    """Return the text of a cell.

    >>> _cell(None, whole=True), _cell(1234.5, whole=True), _cell("2026-11-01T10:20:30+00:00", whole=True)
    ('–', '1,234', '2026-11-01 10:20')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    text = printable(str(value).replace("\n", "⏎"))
    if moment := MOMENT.fullmatch(text):
        return f"{moment[1]} {moment[2]}"
    return text if whole or len(text) <= LONGEST else f"{text[:LONGEST]}…"


def flat(rows: pa.Table) -> pa.Table:
    """Return a flat table for CSV. Lists are joined by semicolons. Texts that a spreadsheet would evaluate are quoted,
    because a model may have written them."""
    for place, field in enumerate(rows.schema):
        values = rows[field.name].to_pylist()
        if pa.types.is_nested(field.type):
            values = [None if value is None else "; ".join(map(str, value)) for value in values]
        elif not pa.types.is_string(field.type):
            continue
        texts = [f"'{text}" if text and text[0] in "=+-@\t\r" else text for text in values]
        rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
    return rows

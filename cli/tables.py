"""Arrow tables on a terminal: at most 80 columns wide unless the terminal is wider, no colours when piped."""

from __future__ import annotations

import sys

import orjson
import pyarrow as pa
from rich.console import Console
from rich.table import Table

MAX_ROWS = 1000


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    rows = table.slice(0, MAX_ROWS).to_pylist()
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(table.to_pylist(), default=str) + b"\n")
        return
    console = Console(highlight=False)
    width = None if console.is_terminal else 160
    console = Console(highlight=False, width=width)
    shown = Table(title=title, show_edge=False, pad_edge=False)
    numeric = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in table.schema]
    for field, right in zip(table.schema, numeric, strict=True):
        shown.add_column(field.name, justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
    for row in rows:
        shown.add_row(*[_cell(value) for value in row.values()])
    console.print(shown)
    if table.num_rows > MAX_ROWS:
        console.print(f"… {table.num_rows - MAX_ROWS} more rows (use --json for all)")


def _cell(value: object) -> str:
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("\n", "⏎").replace("[", "\\[")[:200]

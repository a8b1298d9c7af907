"""Arrow tables on a terminal: as wide as it is, 80 columns when piped, no colours when piped."""

from __future__ import annotations

import re
import sys

import orjson
import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

MAX_ROWS = 1000
#: A longer text is cut.
WIDEST = 40
#: Between two columns.
RULE = 3
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d:.+]+")


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """Columns from the left, as many as fit; the others are named below."""
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(table.to_pylist(), default=str) + b"\n")
        return
    console = Console(highlight=False)
    cells = {f.name: [_cell(v) for v in table[f.name].slice(0, MAX_ROWS).to_pylist()] for f in table.schema}
    kept = fitting({name: _width(name, column) for name, column in cells.items()}, console.width)
    shown = Table(title=title, show_edge=False, pad_edge=False)
    for name in kept:
        kind = table.schema.field(name).type
        right = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        shown.add_column(name, justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
    for row in zip(*(cells[name] for name in kept), strict=True):
        shown.add_row(*(text.replace("[", "\\[") for text in row))
    console.print(shown)
    if table.num_rows > MAX_ROWS:
        console.print(f"… {table.num_rows - MAX_ROWS} more rows (use --json for all)")
    if left_out := [name for name in cells if name not in kept]:
        console.print(f"not shown for want of room: {', '.join(left_out)} (use --json for all)")


def fitting(widths: dict[str, int], room: int) -> list[str]:
    """The first columns whose widths and rules fit; one at least.

    >>> fitting({"ref": 30, "rows": 10, "stage": 40}, 80), fitting({"text": 100}, 80)
    (['ref', 'rows'], ['text'])
    """
    kept, used = [], 0
    for name, width in widths.items():
        used += width + (RULE if kept else 0)
        if kept and used > room:
            break
        kept.append(name)
    return kept


def _width(name: str, cells: list[str]) -> int:
    return max(cell_len(text) for text in [name, *cells])


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    text = str(value)[: 2 * WIDEST]
    if moment := MOMENT.fullmatch(text):
        return f"{moment[1]} {moment[2]}"
    text = "".join(c if c.isprintable() else "⏎" if c == "\n" else "\ufffd" for c in text)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"

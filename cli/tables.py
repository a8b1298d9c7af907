"""Arrow tables on a terminal, as wide as it is. In a pipe: whole texts, a line a row, no colours."""

from __future__ import annotations

import os
import re
from textwrap import wrap

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from cli import options
from storage.errors import UserError, printable

MAX_ROWS = 1000
#: A longer text is cut, but not what a command takes again: a word alone, such as a name or a path, nor the ref of an
#: artifact or the id of a run wherever they stand.
WIDEST = 40
WORD = re.compile(r"[\w./:@+-]{1,100}")
NAMED = re.compile(r"[\w./-]{1,100}-[0-9a-f]{8}(?:[0-9a-f]{8})?\b")
#: What is looked at of a text.
LONGEST = 2 * (WIDEST + 100)
#: Between two columns.
RULE = 3
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d:.+]+")


def print_table(table: pa.Table, *, as_json: bool, title: str | None = None, whole: bool = False) -> None:
    """Columns from the left, as many as fit; the others follow below, beside the first one again. whole: a longer text
    goes on in the lines below it."""
    try:
        rows = (table if as_json else table.slice(0, MAX_ROWS)).to_pylist()
    except (OverflowError, ValueError) as error:  # DuckDB's calendar is longer than Python's
        raise UserError(f"a value cannot be written ({error}); cast it to text, as in day::varchar") from None
    if as_json:
        options.write_json(rows)
        return
    console = Console(highlight=False)
    piped = not console.is_terminal and "COLUMNS" not in os.environ
    cells = {name: [_cell(row[name], whole=whole, cut=not piped) for row in rows] for name in table.column_names}
    widths = {name: _width(name, column) for name, column in cells.items()}
    if piped:
        console.width = sum(width + RULE for width in widths.values())
    for kept in blocks(widths, console.width):
        # two columns that have no room beside each other are wider than the terminal, which breaks the line
        console.width = max(console.width, sum(widths[name] + RULE for name in kept) - RULE)
        console.print(_block(table.select(kept), cells, title))
        title = None
    if table.num_rows > MAX_ROWS:
        console.print(f"… {table.num_rows - MAX_ROWS} more rows (use --json for all)")


def _block(table: pa.Table, cells: dict[str, list[str]], title: str | None) -> Table:
    shown = Table(title=title, show_edge=False, pad_edge=False)
    for field in table.schema:
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(printable(field.name), justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
    for row in zip(*(cells[name] for name in table.column_names), strict=True):
        shown.add_row(*(text.replace("[", "\\[") for text in row))
    return shown


def blocks(widths: dict[str, int], room: int) -> list[list[str]]:
    """Columns in their order, in blocks of which each begins with the first column and, but for one column too wide,
    fits with its rules.

    >>> blocks({"ref": 30, "rows": 10, "stage": 40, "made": 16}, 80)
    [['ref', 'rows'], ['ref', 'stage'], ['ref', 'made']]
    >>> blocks({"text": 100}, 80)
    [['text']]
    """
    first, *others = widths
    found = [[first]]
    for name in others:
        if sum(widths[one] + RULE for one in found[-1]) + widths[name] > room and len(found[-1]) > 1:
            found.append([first])
        found[-1].append(name)
    return found


def _width(name: str, cells: list[str]) -> int:
    return max(cell_len(line) for text in [name, *cells] for line in text.split("\n"))


def _cell(value: object, *, whole: bool = False, cut: bool = True) -> str:
    """Return a value as text. whole: a longer text goes on in the lines below it. cut: it ends with an ellipsis.

    >>> _cell("of a study of ours, and of nothing else at all", whole=True)
    'of a study of ours, and of nothing else\\nat all'
    >>> _cell("of a-study-of-ours-0123abcd alone and of nothing else")
    'of a-study-of-ours-0123abcd alone and o…'
    >>> _cell("of the-best-study-of-our-team-4-0123abcd alone")
    'of the-best-study-of-our-team-4-0123abcd…'
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    text = str(value)[: LONGEST if cut and not whole else None]
    if moment := MOMENT.fullmatch(text):
        return f"{moment[1]} {moment[2]}"
    text = printable(text.replace("\n", "⏎"))
    if len(text) <= WIDEST or not cut or WORD.fullmatch(text):
        return text
    if whole:
        return "\n".join(wrap(text, WIDEST, break_long_words=False, break_on_hyphens=False))
    end = next((one.end() for one in NAMED.finditer(text) if one.start() < WIDEST - 1 < one.end()), WIDEST - 1)
    return text[:end] + "…" * (end < len(text))

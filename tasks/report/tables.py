"""Rows formatted for readers: units by column name, intervals next to their value, and long text truncated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.reading.figures import is_gain, is_p_value, is_share

#: Most characters of a cell. A longer text is truncated, with a note on its length.
MAX_CHARS = 300
#: Most rows of a table. A longer table is truncated, with a note on the number of its rows.
MAX_ROWS = 60


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """A table as it is printed. `numeric`: whether each column is right-aligned."""

    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str

    def parts(self, most: int) -> list[PrintedTable]:
        """Return tables with at most `most` characters a line. Each repeats the first columns, which name the rows.

        >>> wide = PrintedTable(("arm", "rate", "n"), (False, True, True), (("panel", "12.5 %", "40"),), "")
        >>> [part.columns for part in wide.parts(16)]
        [('arm', 'rate'), ('arm', 'n')]
        """
        widths = [_width(name, [row[place] for row in self.rows]) for place, name in enumerate(self.columns)]
        keys = [place for place in range(min(2, len(self.columns))) if not self.numeric[place]]
        parts, room = [list[int]()], 0
        for place, width in enumerate(widths):
            if parts[-1] and room + width > most and len(parts[-1]) > len(keys):
                parts.append(list(keys))
                room = sum(widths[key] for key in keys)
            parts[-1].append(place)
            room += width
        return [self._of(part) for part in parts]

    def _of(self, places: Sequence[int]) -> PrintedTable:
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return PrintedTable(
            tuple(self.columns[p] for p in places), tuple(self.numeric[p] for p in places), rows, self.note
        )


#: A cell with more characters of text is wrapped.
WRAPPED = 30


def _width(name: str, cells: Sequence[str]) -> int:
    """Return the width of a column in characters, with the space after it. Names are broken between words."""
    return max(max(map(len, name.split()), default=0), *(min(len(cell), WRAPPED) for cell in cells), 0) + 2


def number(value: float | None, digits: int = 3) -> str:
    """
    >>> number(1234.5), number(0.12345), number(None), number(12.0), number(-1.01e-17)
    ('1,234', '0.123', '–', '12', '0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) < 1e-12:  # rounding error of a difference of equal sums
        return "0"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if abs(value) < 1e-3 else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}".removesuffix(".0") + " %"


def minus(text: str) -> str:
    """Return the text with a minus sign that is as wide as a plus sign."""
    return text.replace("-", "−")


def spell(name: str, value: object) -> str:
    """Return the text of one cell. A share is printed in percent, a difference of shares in percentage points.

    >>> spell("rate", 0.125), spell("gain", 0.15), spell("n", None), spell("p_value", 1.2e-7)
    ('12.5 %', '+15 pp', '–', '1.2e-07')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value == value:
        if is_gain(name):
            return minus(f"{100 * value:+.1f}".removesuffix(".0") + " pp")
        if is_share(name):
            return minus(percent(value))
        if is_p_value(name):
            return f"{value:.2g}"
        return minus(number(value))
    if isinstance(value, int):
        return f"{value:,}" if name not in ("seed", "step", "year", "k") else str(value)
    if isinstance(value, list | tuple):
        return cut(", ".join(spell("", v) for v in value))
    return cut(str(value))


def cut(text: str, most: int = MAX_CHARS) -> str:
    """Return a text in one line. A long text is truncated, with a note. Control characters become names."""
    line = "".join(c if c.isprintable() else {"\n": "⏎", "\t": " "}.get(c, "\ufffd") for c in text[:most])
    return line if len(text) <= most else f"{line}… ({len(text):,} characters)"


def printed_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], most: int = MAX_ROWS) -> PrintedTable:
    """Return rows as they are printed. Columns `x_low` and `x_high` become the interval of `x`. A column without values
    is left out, and a note names it. most: the largest number of rows to print."""
    joined = [c for c in columns if not _is_bound(c, columns)]
    kept = [c for c in joined if not rows or any(row[c] is not None for row in rows)]
    missing = [c for c in joined if c not in kept and c != "reason"]
    body = tuple(tuple(_with_interval(row, c) for c in kept) for row in rows[:most])
    numeric = tuple(all(isinstance(row[c], int | float | None) for row in rows) for c in kept)
    notes = [f"The first {most} of {len(rows):,} rows."] if len(rows) > most else []
    notes += [f"Not measured: {', '.join(m.replace('_', ' ') for m in missing)}."] if missing else []
    return PrintedTable(tuple(c.replace("_", " ") for c in kept), numeric, body, " ".join(notes))


def _is_bound(column: str, columns: Sequence[str]) -> bool:
    return column.removesuffix("_low").removesuffix("_high") in columns and column.endswith(("_low", "_high"))


def _with_interval(row: Mapping[str, object], column: str) -> str:
    value = spell(column, row[column])
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    if low is None or high is None or row[column] is None:
        return value
    return f"{value} [{spell(column, low).removesuffix(' pp').removesuffix(' %')}, {spell(column, high)}]"


# ---- a printed table in LaTeX, with booktabs

SIGNS = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\ldots{}", "–": "--"}
    | {"−": "$-$", "→": r"$\to$", "×": r"$\times$", "±": r"$\pm$", "<": "$<$", ">": "$>$", "|": "$|$"}
)


def as_latex(table: PrintedTable, title: str) -> str:
    r"""
    >>> print(as_latex(PrintedTable(("arm", "gain"), (False, True), (("no_panel", "−1 %"),), ""), "A & B"))
    % \usepackage{booktabs}
    \begin{table}
    \centering
    \caption{A \& B}
    \begin{tabular}{lr}
    \toprule
    arm & gain \\
    \midrule
    no\_panel & $-$1 \% \\
    \bottomrule
    \end{tabular}
    \end{table}
    <BLANKLINE>
    """
    first, *rows = (" & ".join(cell.translate(SIGNS) for cell in row) + r" \\" for row in (table.columns, *table.rows))
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    head = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{title.translate(SIGNS)}}}"]
    body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*head, *body, r"\end{tabular}", r"\end{table}", ""])

r"""Answers laid out over several lines or in columns: aligned equations, cases, vectors and matrices."""

from __future__ import annotations

import re

_LINES = r"(?:align|aligned|alignat|equation|gather|gathered|split|multline)\*?"
_ALIGNED = re.compile(rf"\\begin ?\{{{_LINES}\}}(?P<inner>(?:(?!\\begin).)*?)\\end ?\{{{_LINES}\}}", re.S)
_CASES = re.compile(r"\\begin ?\{cases\}(?P<inner>(?:(?!\\begin)[^&])*?)\\end ?\{cases\}", re.S)
_GOES_ON = re.compile(r"[-+=<>]|\\(?:le|ge|approx|cdot|times|equiv)(?![A-Za-z])")
_MATRIX = re.compile(
    r"\\begin ?\{(?P<name>[pbB]?(?:small)?matrix|array)\}(?P<columns> ?\{[lcr| ]*\})?"
    r"(?P<inner>(?:(?!\\begin|\\end).)*)\\end ?\{(?P=name)\}",
    re.S,
)
_TRANSPOSED = re.compile(r"(?P<rest>.*[)\]}]) ?\^ ?\{? ?(?:T|t|\\top|\\intercal) ?\}?", re.S)
_ROW = re.compile(r"[(\[]([^()\[\]]*,[^()\[\]]*)[)\]]")


def one_line(text: str) -> str:
    r"""A formula over several lines as one: a line that goes on with the one before is joined, others are a list.

    >>> one_line(r"\begin{align*} x &= 3+4 \\ &= 7 \end{align*}"), one_line(r"\begin{cases}x=1\\y=2\end{cases}")
    ('x = 3+4 = 7', 'x=1, y=2')
    """
    found = _ALIGNED.fullmatch(text.strip()) or _CASES.fullmatch(text.strip())
    if found is None:
        return text
    lines = [
        line for part in re.split(r"\\\\", found["inner"]) if (line := re.sub(r"\s*(?<!\\)&\s*", " ", part).strip(" ,"))
    ]
    joined = ""
    for line in lines:
        joined += (" " if not joined or _GOES_ON.match(line) else ", ") + line
    return joined.strip()


def matrix_rows(text: str) -> list[list[str]] | None:
    r"""Entries of a vector or matrix, row by row; null for anything else. A determinant is a number, not a matrix.

    >>> matrix_rows(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), matrix_rows("(1,2)^T")
    ([['1', '2'], ['3', '4']], [['1'], ['2']])
    """
    if turned := _TRANSPOSED.fullmatch(text):
        row = _ROW.fullmatch(turned["rest"])
        rows = [[entry.strip() for entry in row[1].split(",")]] if row else matrix_rows(turned["rest"])
        return None if rows is None else [list(column) for column in zip(*rows, strict=True)]
    bare = text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") else text
    found = _MATRIX.fullmatch(bare)
    if found is None:
        return None
    rows = [row for row in re.split(r"\\\\", found["inner"]) if row.strip()]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)&", row)] for row in rows]
    whole = cells and all(len(row) == len(cells[0]) and all(row) for row in cells)
    return cells if whole else None

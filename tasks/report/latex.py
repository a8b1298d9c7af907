"""A printed table in LaTeX, with booktabs."""

from __future__ import annotations

from tasks.report.tables import Shown

SIGNS = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "→": r"$\to$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}


def as_latex(table: Shown, title: str) -> str:
    r"""
    >>> print(as_latex(Shown(("arm", "gain"), (False, True), (("no_panel", "−1 %"),), ""), "A & B"))
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
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{_spelt(title)}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _row(table.columns), r"\midrule"]
    lines += [_row(row) for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(_spelt, cells)) + r" \\"


def _spelt(text: str) -> str:
    return "".join(SIGNS.get(c, c) for c in text)

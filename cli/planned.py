"""What `varband plan` says in a terminal."""

from __future__ import annotations

import sys

import orjson
from rich.console import Console
from rich.table import Table

from flows.running.priced import UNITS, Priced, amounts


def show_plan(priced: Priced, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(priced.as_json()) + b"\n")
        return
    console = Console(highlight=False)
    console.print(_table(priced))
    for sentence in priced.sentences():
        console.print(sentence, markup=False, soft_wrap=True)


def _table(priced: Priced) -> Table:
    """The names of stages give way where there is no room; numbers never do."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("stage", overflow="fold")
    for name in UNITS:
        table.add_column(name, justify="right", no_wrap=True)
    for p, c in zip(priced.planned, priced.costs, strict=True):
        mark = "·" if p.reused else "left" if p.left else "+"
        table.add_row(mark, p.step.title, *amounts(c), style="" if p.made_here else "dim")
    table.add_row("", "[bold]total[/]", *amounts(priced.whole))
    return table

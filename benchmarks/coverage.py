"""Coverage and type I error of what the report prints, over simulated studies of known truth, through the project's own
tables. Writes the tables of docs/coverage.md.

    python -m benchmarks.coverage [--trials 1000] [--workers 32] [--part cells] [--only "near 0, n = 25"] coverage.jsonl
    python -m benchmarks.coverage --table coverage.jsonl

What the file already holds is not made again, so a run that was stopped goes on, and one of more trials adds to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import of_cells, tokens_of_cells
from benchmarks.further_figures import further_figures, looks
from benchmarks.jobs import PIECE, Job, kept_in, make, pieces
from benchmarks.tally import FEW, missed, monte_carlo, near_edge, of_pieces
from tests.measures.simulated import EDGES, Cell

Row = dict[str, Any]
PARTS: dict[str, Callable[[], Iterator[Job]]] = {
    "cells": of_cells,
    "tokens": tokens_of_cells,
    "further": further_figures,
    "looks": looks,
}
TRIALS = f"""simulated studies of every job, made in pieces of {PIECE}, each with a seed of its own. All parts follow it: of
bands and votes, which take a fit or a vote each, every fourth study is looked at"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=PIECE, help=TRIALS)
    parser.add_argument("--workers", type=int, default=1, help="processes; rows do not depend on it")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be given several times")
    parser.add_argument("--only", default="", help="jobs of whose name this is a part: population, n and design")
    parser.add_argument("--table", action="store_true", help="make nothing anew: the tables of what the file holds")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    if args.table:
        print(table_of(kept_in(args.file), [job.name for part in PARTS.values() for job in part()]))
        return
    jobs = [job for part in args.part or PARTS for job in PARTS[part]() if args.only in job.name]
    if failed := make(list(pieces(jobs, args.trials)), args.file, args.workers):
        sys.exit("\n".join([f"{len(failed)} pieces failed; what was made is kept:", *failed]))


def table_of(kept: list[Row], jobs: Sequence[str]) -> str:
    """jobs: the names of all, in the order in which the tables show them; pieces come as they were ready."""
    place = {name: at for at, name in enumerate(jobs)}
    whole = sorted(of_pieces(kept), key=lambda row: place.get(row["job"], len(place)))
    rows = [row | {"cell": Cell(**row["cell"])} for row in whole if "cell" in row]
    return "\n".join(
        (markdown(sorted(rows, key=lambda r: r["figure"])), further_table([row for row in whole if "design" in row]))
    )


def at_an_edge(row: Row) -> bool:
    """A share near 0 or 1; a difference of which all but few problems are at 0. Near-duplicates are one problem."""
    cell, moving = row["cell"], row.get("moving")
    if moving is not None and cell.problems / cell.copies * moving < FEW:
        return True
    level = row["figure"].startswith(("held-out", "pass", "G-Pass", "mG-Pass"))
    few = level and near_edge(cell.problems / cell.copies, row["truth"])
    return few or cell.population in EDGES or row["figure"] == "simultaneous band"


def markdown(rows: list[Row]) -> str:
    """A table a figure: coverage in percent by problems (down) and design (across), then what misses a target."""
    out = []
    for figure in dict.fromkeys(r["figure"] for r in rows):
        mine = [r for r in rows if r["figure"] == figure]
        designs = list(dict.fromkeys(r["cell"].design for r in mine))
        out += [f"\n**{figure}**\n", f"| problems | {' | '.join(designs)} |", "|---" * (len(designs) + 1) + "|"]
        for key in dict.fromkeys((r["cell"].population, r["cell"].problems) for r in mine):
            found = {r["cell"].design: r for r in mine if (r["cell"].population, r["cell"].problems) == key}
            words = [_covered(found[d]) if d in found else "" for d in designs]
            out.append(f"| {key[0]}, n = {key[1]} | {' | '.join(words)} |")
    off = [
        f"- {r['figure']}, {r['cell'].population}, n = {r['cell'].problems}, {r['cell'].design}: {_covered(r)}, {why}"
        for r in rows
        if (why := missed(r, at_an_edge(r)))
    ]
    return "\n".join([*out, "\nThese cells miss a target:\n", *(off or ["none"])])


def further_table(rows: Sequence[Row]) -> str:
    """Designs down, figures of the same designs across: what they cover in percent, in brackets how often p < .05 or, for
    a chance of improvement, how often a half is excluded; then what misses a target. ±: the simulation's standard error
    of 95 %, in points."""
    of_figure: dict[str, dict[str, Row]] = {}
    for row in rows:
        of_figure.setdefault(row["figure"], {})[row["design"]] = row
    alike: dict[tuple[str, ...], list[str]] = {}
    for figure, found in of_figure.items():
        alike.setdefault(tuple(found), []).append(figure)
    lines = []
    for designs, figures in alike.items():
        lines += [f"\n| design | studies | ± | {' | '.join(figures)} |", "|---" * (len(figures) + 3) + "|"]
        for design in designs:
            mine = [of_figure[figure][design] for figure in figures]
            studies = mine[0]["trials"]
            error = 100 * monte_carlo(0.95, studies)
            lines.append(f"| {design} | {studies} | {error:.1f} | {' | '.join(map(_covered, mine))} |")
    off = [
        f"- {row['figure']}, {row['design']}: {_covered(row)}, {why}"
        for row in rows
        if (why := missed(row, edge=row["design"].startswith(EDGES) or row.get("edge", False)))
    ]
    return "\n".join([*lines, "\nThese figures miss a target:\n", *(off or ["none"])])


def _covered(row: Row) -> str:
    covers, below = row["covers"], row["below_05"]
    words = "–" if covers is None else f"{100 * covers:.1f}"
    words = words if below is None else f"{words} ({100 * below:.0f})"
    return words if covers is None or row["printed"] > 0.995 else f"{words}, printed in {100 * row['printed']:.0f} %"


if __name__ == "__main__":
    main()

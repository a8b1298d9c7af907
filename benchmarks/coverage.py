"""Coverage and type I error of what the report prints, over simulated studies of known truth, through the project's own
tables. Writes the tables of docs/coverage.md.

    python -m benchmarks.coverage [--trials 1000] [--workers 32] [--part cells] [--only "near 0, n = 25"] coverage.jsonl
    python -m benchmarks.coverage --table coverage.jsonl

What the file already holds is not made again, so a run that was stopped goes on, and one of more trials adds to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.cells import of_cells, tokens_of_cells
from benchmarks.coverage_table import table_of
from benchmarks.further_figures import further_figures
from benchmarks.jobs import PIECE, Job, kept_in, make, pieces
from benchmarks.looks import looks

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


if __name__ == "__main__":
    main()

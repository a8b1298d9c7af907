"""Coverage and type I error of what the report prints, over simulated studies of known truth, through the project's own
tables. Writes the table of docs/coverage.md.

    python -m benchmarks.coverage [--trials 250] [--part cells|studies|further] [--only "near 0, n = 25"] coverage.jsonl
    python -m benchmarks.coverage --table coverage.jsonl

What the file already holds is not made again, so a run that was stopped goes on.

Every trial is a `source` of one table, so that a table is made once for all trials of a cell.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.coverage_table import table_of
from benchmarks.further_figures import further_figures
from benchmarks.simulated import KS, TRAIN_G, Cell, G, groups_of, rollouts_of, shift_by, truths
from benchmarks.tally import tally
from benchmarks.whole_studies import whole_studies
from storage.sql import query
from tasks.domain.statistics.contrasts_of_k import contrast_curves
from tasks.domain.statistics.means import MARGIN
from tasks.measures.bands import crosstab_of
from tasks.measures.g_pass import g_pass_of
from tasks.measures.gains import gains_of
from tasks.measures.pass_at_k import contrasts_of, passk_of
from tasks.measures.slicing import counts_of
from tasks.measures.token_costs import cost_rows
from tasks.measures.trajectories import gain_rows, heldout_rows
from tasks.measures.votes import votes_of

DRAWS = 2_000
FEW_TRIALS = 60  # of what takes a fit or a vote each
CLOSING = 0.6  # logits by which one arm is better than the other
Row = dict[str, Any]
Job = tuple[str, Callable[[int], list[Row]]]


def judged(figure: str, cell: Cell, rows: list[Row], truth: float) -> Row:
    """The trials' rows of one figure against its truth."""
    return {"figure": figure, "cell": cell, "trials": len(rows), "truth": truth} | tally(rows, [truth] * len(rows))


def measured(cell: Cell, trials: int, seed: int = 0) -> list[Row]:
    """Every figure of one cell; what takes long only in one cell a population."""
    groups, truth = groups_of(cell, trials, seed), truths(cell)
    after = query("from groups where step = 1", groups=groups)
    of_trial = lambda rows: [r for r in rows if r["source"] != "all"]  # noqa: E731
    held = of_trial(heldout_rows(after))
    found = [judged("held-out accuracy", cell, [r for r in held if r["arm"] == "b"], truth["after"][1][0])]
    curves = [r for r in of_trial(passk_of(after, KS, DRAWS, 0).to_pylist()) if r["arm"] == "b"]
    for place, k in enumerate(KS):
        for metric, values in (("pass@k", truth["after"][1]), ("pass^k", truth["all"][1])):
            if k in (2, 8):
                mine = [r for r in curves if r["metric"] == metric and r["k"] == k]
                found.append(judged(f"{metric.replace('k', str(k))}", cell, mine, values[place]))
    found.append(_bands(cell, [r for r in curves if r["metric"] == "pass@k"], truth["after"][1]))
    steady = [r for r in of_trial(g_pass_of(after, (8,)).to_pylist()) if r["arm"] == "b"]
    for metric, wanted in (("G-Pass@k", 4), ("mG-Pass@k", None)):
        mine = [r for r in steady if (r["metric"], r["wanted"]) == (metric, wanted)]
        found.append(judged(metric.replace("k", "8"), cell, mine, truth["g_pass"][1][wanted]))
    rows = of_trial(contrasts_of(after, KS, 50, 0).to_pylist())
    for place, k in ((0, 1), (3, 8)):
        gap = truth["after"][0][place] - truth["after"][1][place]
        found.append(judged(f"gap at k = {k}", cell, [r for r in rows if r["metric"] == "gap" and r["k"] == k], gap))
    gain = truth["after"][1][0] - truth["before"]
    found.append(judged("gain", cell, [r for r in of_trial(gain_rows(groups)) if r["arm"] == "b"], gain))
    if cell.logits:
        found.append(_gain_of_k(cell, groups))
    if cell.shift == CLOSING and cell.cost == 1:
        found += _closures(cell, rows, truth)
    differ = truth["after"][0][0] - truth["after"][1][0]
    gained = of_trial(gains_of(groups).to_pylist())
    found += [judged("difference of gains", cell, gained, differ), _equivalent(cell, gained, differ)]
    costs = [r for r in of_trial(cost_rows(after)) if r["arm"] == "a"]
    found.append(judged("tokens per correct", cell, costs, truth["tokens"][0]))
    if cell == Cell(cell.population, 100):
        found += _of_bands(cell, groups, truth) + _of_votes(cell, after, truth)
    return found


def _gain_of_k(cell: Cell, groups: pa.Table) -> Row:
    """pass@8 of the second arm before training minus after, as the table of contrasts has it by source."""
    own = replace(cell, seeds=1, logits=0.0, sd_pp=0.0)
    gain = truths(own)["after"][1][-1] - truths(cell)["after"][1][-1]
    counts = counts_of(query("from groups where arm = 'b'", groups=groups))
    sources = [source for _, step, source in counts.places if step and source != "all"]
    pairs = [[counts.curve("b", step, source, (1, G)) for step in (0, 1)] for source in sources]
    rows = [row for pair in pairs for row in contrast_curves(pair[0], pair[1], (1, G), 50, 0)]
    return judged(f"gain of pass@{G}", cell, [r for r in rows if (r["metric"], r["k"]) == ("gap", G)], gain)


def _closures(cell: Cell, rows: list[Row], truth: Row) -> list[Row]:
    """By how much the gap is nearer to 0 at the largest k than at the smallest, on every scale."""
    one, other = (np.array(curve) for curve in truth["after"])
    gaps = {
        "closure": one - other,
        "closure_of_failures": np.log1p(-other) - np.log1p(-one),
        "closure_of_logits": np.log(one / (1 - one)) - np.log(other / (1 - other)),
    }
    # signed by the gap at k = 1, where the second arm is ahead
    return [
        judged(name, cell, [r for r in rows if r["metric"] == name and r["reason"] is None], float(gap[-1] - gap[0]))
        for name, gap in gaps.items()
    ]


def _equivalent(cell: Cell, rows: list[Row], truth: float) -> Row:
    """How often two arms' gains are called equivalent: an error where they differ by the margin or more."""
    called = [r["p_equivalent"] is not None and r["p_equivalent"] < 0.05 for r in rows]
    figure = "called equivalent" if abs(truth) < MARGIN - 1e-3 else "called equivalent in error"
    return judged(figure, cell, [], truth) | {"trials": len(rows), "below_05": float(np.mean(called))}


def _of_bands(cell: Cell, groups: pa.Table, truth: Row) -> list[Row]:
    """Expected live groups of the screening and the ratio of two arms' variance bands, of the first trials: a fit each."""
    after = query("select arm, problem_id, source, group_size, num_correct from groups where step = 1", groups=groups)
    live: list[Row] = []
    ratios: list[Row] = []
    for trial in sorted(set(after["source"].to_pylist()))[:FEW_TRIALS]:
        bands = query("select *, band(num_correct, group_size) as band from t where source = $s", {"s": trial}, t=after)
        rows = [r for r in crosstab_of(bands, TRAIN_G).to_pylist() if r["source"] == "all"]
        live += [r for r in rows if r["metric"] == "expected_live" and r["arm"] == "b"]
        ratios += [r for r in rows if r["metric"] == "ratio"]
    return [
        judged(f"expected live groups of {TRAIN_G}", cell, live, truth["live_at_training"][1]),
        judged("ratio of variance bands", cell, ratios, truth["live"][0] / truth["live"][1]),
    ]


def _of_votes(cell: Cell, after: pa.Table, truth: Row) -> list[Row]:
    """maj@4 of the first trials: wrong answers are one of three, alike."""
    groups = query("from groups where arm = 'b' and source < $s", {"s": f"{FEW_TRIALS:05d}"}, groups=after)
    rows = [r for r in votes_of(rollouts_of(groups), (4,), 0).to_pylist() if r["metric"] == "maj@k"]
    return [judged("maj@4", cell, [r for r in rows if r["source"] != "all"], truth["majority"][1])]


def _bands(cell: Cell, rows: list[Row], truth: list[float]) -> Row:
    """Trials whose simultaneous band holds the truth at every k."""
    by_trial: dict[str, list[Row]] = {}
    for row in rows:
        wide = {"low": row["low_simultaneous"], "high": row["high_simultaneous"]}
        by_trial.setdefault(row["source"], []).append(row | wide)
    inside = [
        {
            "low": 0.0 if all(r["low"] - 1e-12 <= truth[KS.index(r["k"])] <= r["high"] + 1e-12 for r in one) else 1.0,
            "high": 1.0,
        }
        for one in by_trial.values()
        if all(r["low"] is not None for r in one)
    ]
    row = judged("simultaneous band", cell, inside, 0.0)
    return row | {"width": None, "no_width": 0, "truth": None}


def cells() -> Iterator[Cell]:
    for population in ("ordinary", "near 0", "near 1", "zero-inflated"):
        for n in (20, 100, 300):
            yield Cell(population, n)
            if population != "zero-inflated":
                yield Cell(population, n, shift=CLOSING)
            for sd in (0.0, 1.0, 3.0, 6.0):
                if population == "ordinary" or sd == 1.0:
                    yield Cell(population, n, seeds=3, sd_pp=sd)
    for shift in (1.0, 2.0):
        yield Cell("near 0", 25, shift=shift)
    for n in (100, 300):
        yield Cell("ordinary", n, seeds=2, sd_pp=10.0)
    for n in (20, 100, 300):
        yield Cell("ordinary", n, seeds=5, sd_pp=3.0)
        yield Cell("ordinary", n, cost=2.7, shift=CLOSING)
        yield Cell("ordinary", n, shift=shift_by(MARGIN))
    for population, n, seeds in (
        ("middling", 300, 2), ("middling", 300, 3), ("easy", 100, 3), ("easy", 300, 2), ("easy", 300, 3), ("easy", 300, 5)
    ):  # fmt: skip
        yield Cell(population, n, seeds=seeds, logits=1.0)
    for n, copies in ((100, 5), (300, 5), (300, 10)):
        yield Cell("ordinary", n, copies=copies)
        yield Cell("ordinary", n, seeds=3, sd_pp=3.0, copies=copies)


def of_cells() -> Iterator[Job]:
    for cell in cells():
        name = f"{cell.population}, n = {cell.problems}, {cell.design}"
        yield name, lambda trials, cell=cell: [row | {"cell": asdict(cell)} for row in measured(cell, trials)]


PARTS: dict[str, Callable[[], Iterator[Job]]] = {
    "cells": of_cells,
    "studies": whole_studies,
    "further": further_figures,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=250)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be given several times")
    parser.add_argument("--only", default="", help="cells of whose name this is a part: population, n and design")
    parser.add_argument("--table", action="store_true", help="write nothing anew: the table of what the file holds")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    kept = [json.loads(line) for line in args.file.read_text().splitlines()] if args.file.exists() else []
    if args.table:
        print(table_of(kept))
        return
    done = {row["job"] for row in kept}
    for part in args.part or PARTS:
        for job, made in PARTS[part]():
            if job not in done and args.only in job:
                rows = made(args.trials)
                with args.file.open("a") as file:
                    file.writelines(json.dumps(row | {"job": job}) + "\n" for row in rows)
                print(job, flush=True)


if __name__ == "__main__":
    main()

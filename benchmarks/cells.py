"""Coverage of the main tables' figures in cells of simulated studies, for benchmarks/coverage.py.

Every trial is a `source` of one table, so that a table is made once for all trials of a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.jobs import Job
from benchmarks.tally import tally
from storage.estimates import Band
from storage.sql import query
from tasks.domain.statistics.curves_of_k import contrast_curves, k_curve
from tasks.domain.statistics.means import MARGIN
from tasks.measures.bands import crosstab_of
from tasks.measures.curves import gain_rows, gains_of, heldout_rows
from tasks.measures.groups import counts_of
from tasks.measures.pass_at_k import contrasts_of, g_pass_of, passk_of, votes_of
from tasks.measures.tokens import cost_rows
from tests.measures.simulated import ANSWERING, KS, TRAIN_G, Cell, G, groups_of, rollouts_of, shift_by, truths

DRAWS = 2_000
CLOSING = 0.6  # logits by which one arm is better than the other
Row = dict[str, Any]


def few(trials: int) -> int:
    """Return the number of trials of figures that take a fit or a vote each."""
    return max(trials // 4, min(trials, 40))


def judged(figure: str, cell: Cell, rows: list[Row], truth: float) -> Row:
    """The trials' rows of one figure against its truth."""
    about = {"figure": figure, "cell": cell, "trials": len(rows), "truth": truth}
    return about | {"moving": truths(cell)["moving"].get(figure)} | tally(rows, [truth] * len(rows))


def measured(cell: Cell, trials: int, seed: int = 0) -> list[Row]:
    """Every figure of one cell; what takes long only in few of them."""
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
    if looked_at_twice(cell):
        found += _of_bands(cell, groups, truth) + _of_votes(cell, after, truth)
    return found


def of_tokens(cell: Cell, trials: int, seed: int = 0) -> list[Row]:
    """Return the coverage of tokens per correct answer, of their ratio between the arms, and of accuracy among answers."""
    after, truth = query("from groups where step = 1", groups=groups_of(cell, trials, seed)), truths(cell)
    rows = [r for r in cost_rows(after) if r["source"] != "all" and r["arm"] == "a"]
    answered = truth["after"][0][0] + ANSWERING * (1 - truth["after"][0][0])
    ratios = {
        ("tokens per correct", "tokens_per_correct"): truth["tokens"][0],
        ("ratio of tokens per correct", "tokens_per_correct_ratio"): truth["tokens"][0] / truth["tokens"][1],
        ("accuracy of answers", "accuracy_answered"): truth["after"][0][0] / answered,
    }
    return [
        judged(figure, cell, [r for r in rows if r["metric"] == metric], value)
        for (figure, metric), value in ratios.items()
    ]


def _gain_of_k(cell: Cell, groups: pa.Table) -> Row:
    """pass@8 of the second arm before training minus after, as the table of contrasts has it by source."""
    own = replace(cell, seeds=1, logits=0.0, sd_pp=0.0)
    gain = truths(own)["after"][1][-1] - truths(cell)["after"][1][-1]
    counts = counts_of(query("from groups where arm = 'b'", groups=groups))
    sources = [source for _, step, source in counts.places if step and source != "all"]
    pairs = [[k_curve(counts.at(("b", step, source)), (1, G)) for step in (0, 1)] for source in sources]
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
    """Return the share of trials in which two arms' gains are called equivalent: an error if they differ by the margin or
    more."""
    called = [r["p_equivalent"] is not None and r["p_equivalent"] < 0.05 for r in rows]
    figure = "called equivalent" if abs(truth) < MARGIN - 1e-3 else "called equivalent in error"
    return judged(figure, cell, [], truth) | {"trials": len(rows), "below_05": float(np.mean(called))}


def looked_at_twice(cell: Cell) -> bool:
    return cell == Cell(cell.population, 100, copies=cell.copies)


def _of_bands(cell: Cell, groups: pa.Table, truth: Row) -> list[Row]:
    """The variance band's share, expected live groups, and the ratio of two arms' variance bands, of some trials."""
    after = query(
        "select arm, problem_id, cluster, source, group_size, num_correct from groups where step = 1", groups=groups
    )
    of_trial: list[Row] = []
    trials = sorted(set(after["source"].to_pylist()))
    for trial in trials[: few(len(trials))]:
        bands = query("select *, band(num_correct, group_size) as band from t where source = $s", {"s": trial}, t=after)
        of_trial += [r for r in crosstab_of(bands, TRAIN_G).to_pylist() if r["source"] == "all"]
    live = [r for r in of_trial if (r["metric"], r["arm"], r["band"]) == ("count", "b", Band.VARIANCE)]
    expected = [r for r in of_trial if (r["metric"], r["arm"]) == ("expected_live", "b")]
    ratios = [r for r in of_trial if r["metric"] == "ratio"]
    return [
        judged("share in the variance band", cell, live, truth["live"][1]),
        judged(f"expected live groups of {TRAIN_G}", cell, expected, truth["live_at_training"][1]),
        judged("ratio of variance bands", cell, ratios, truth["live"][0] / truth["live"][1]),
    ]


def _of_votes(cell: Cell, after: pa.Table, truth: Row) -> list[Row]:
    """maj@4 of some trials: wrong answers are one of three, alike."""
    trials = len(set(after["source"].to_pylist()))
    groups = query("from groups where arm = 'b' and source < $s", {"s": f"{few(trials):05d}"}, groups=after)
    rows = [r for r in votes_of([rollouts_of(groups)], (4,), 0).to_pylist() if r["metric"] == "maj@k"]
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
        for sd in (0.0, 3.0, 10.0):
            yield Cell("ordinary", n, seeds=2, sd_pp=sd)
        yield Cell("ordinary", n, seeds=3, sd_pp=3.0, fewer=1)
        yield Cell("ordinary", n, seeds=5, sd_pp=0.0)
    for n in (20, 100, 300):
        yield Cell("ordinary", n, seeds=5, sd_pp=3.0)
        yield Cell("ordinary", n, cost=2.7, shift=CLOSING)
        yield Cell("ordinary", n, shift=shift_by(MARGIN))
    for population, n, seeds in (
        ("middling", 300, 2), ("middling", 300, 3), ("easy", 300, 2), ("easy", 300, 3), ("easy", 300, 5),
        ("ordinary", 100, 2), ("easy", 100, 2), ("easy", 100, 3),
    ):  # fmt: skip
        yield Cell(population, n, seeds=seeds, logits=1.0)
    yield Cell("easy", 300, seeds=3, logits=1.0, fewer=1)
    for n, copies in ((100, 5), (300, 5), (300, 10)):
        yield Cell("ordinary", n, copies=copies)
        yield Cell("ordinary", n, seeds=3, sd_pp=3.0, copies=copies)


def made(figures: Callable[[Cell, int, int], list[Row]], cell: Cell, trials: int, seed: int) -> list[Row]:
    return [row | {"cell": asdict(cell)} for row in figures(cell, trials, seed)]


def of_cells() -> Iterator[Job]:
    for cell in cells():
        work = cell.problems * (1 + cell.seeds) / 50 + 60 * looked_at_twice(cell)
        yield Job(_name(cell), partial(made, measured, cell), work)


def tokens_of_cells() -> Iterator[Job]:
    for cell in cells():
        yield Job(f"tokens, {_name(cell)}", partial(made, of_tokens, cell), cell.problems * (1 + cell.seeds) / 200)


def _name(cell: Cell) -> str:
    return f"{cell.population}, n = {cell.problems}, {cell.design}"

"""Coverage and type I error of what the report prints, over simulated studies of known truth, through the project's own
tables. Writes the table of docs/coverage.md.

    python -m benchmarks.coverage [--trials 250] > coverage.jsonl
    python -m benchmarks.coverage --table coverage.jsonl

Every trial is a `source` of one table, so that a table is made once for all trials of a cell. A study has two arms, before
training (one policy) and after (an adapter a seed); a problem's chance of a correct rollout has a logit that its population
gives, plus the arm's shift, plus a seed's shift that all problems share, plus what is the problem's own under each arm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.measures.gains import gains_of
from tasks.measures.pass_at_k import contrasts_of, passk_of
from tasks.measures.token_costs import cost_rows
from tasks.measures.trajectories import gain_rows, heldout_rows

G, KS, DRAWS = 8, (1, 2, 4, 8), 2_000
LOW, HIGH = 0.92, 0.98
#: Logits of the chance of a correct rollout. `ordinary`: the fit to the published panel screening; `near 0`: HMMT-like;
#: `near 1`: thinking on MATH-500; `zero-inflated`: three problems in five that no rollout solves.
POPULATIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "ordinary": lambda rng, n: rng.beta(0.277, 1.322, n),
    "near 0": lambda rng, n: rng.beta(0.06, 1.94, n),
    "near 1": lambda rng, n: rng.beta(6.0, 0.15, n),
    "zero-inflated": lambda rng, n: np.where(rng.random(n) < 0.6, 1e-9, rng.beta(1.0, 1.0, n)),
}
EDGES = ("near 0", "near 1")


@dataclass(frozen=True, slots=True)
class Cell:
    """shift: what training adds to the second arm's logits beyond the first's; sd_pp: standard deviation of a seed's
    accuracy, percentage points; cost: tokens of a rollout of the first arm over those of the second."""

    population: str
    problems: int
    seeds: int = 1
    sd_pp: float = 0.0
    shift: float = 0.0
    cost: float = 1.0
    own: float = 0.3


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _logits(population: str, rng: np.random.Generator, n: int) -> np.ndarray:
    p = np.clip(POPULATIONS[population](rng, n), 1e-9, 1 - 1e-9)
    return np.log(p) - np.log1p(-p)


@lru_cache
def seed_scale(population: str, sd_pp: float) -> float:
    """The standard deviation of a seed's shift in logits that gives its accuracy this standard deviation."""
    if sd_pp == 0:
        return 0.0
    from scipy.optimize import brentq

    rng = np.random.default_rng(1)
    logits, shifts = _logits(population, rng, 20_000), np.linspace(-2.5, 2.5, 41)
    weight = np.exp(-(shifts**2) / 2) / np.exp(-(shifts**2) / 2).sum()

    def excess(scale: float) -> float:
        means = np.array([_sigmoid(logits + scale * s).mean() for s in shifts])
        return float(np.sqrt(weight @ (means - weight @ means) ** 2)) - sd_pp / 100

    found: Any = brentq(excess, 0.0, 8.0, xtol=1e-3)
    return float(found)


@lru_cache
def truths(cell: Cell) -> dict[str, Any]:
    """pass@k by arm after training, and mean tokens a correct answer, over problems and seeds without end."""
    rng, many = np.random.default_rng(2), 400_000
    logits, scale = _logits(cell.population, rng, many), seed_scale(cell.population, cell.sd_pp)
    own = rng.normal(0, cell.own, (3, many))
    before = _sigmoid(logits + own[0])
    after = [
        _sigmoid(logits + own[i] + move + scale * rng.normal(size=many)) for i, move in ((1, 0.0), (2, cell.shift))
    ]
    return {
        "before": before.mean(),
        "after": [[float((1 - (1 - p) ** k).mean()) for k in KS] for p in after],
        "all": [[float((p**k).mean()) for k in KS] for p in after],
        "tokens": [
            float(_tokens(logits, cost).mean() / p.mean()) for p, cost in zip(after, (cell.cost, 1.0), strict=True)
        ],
    }


def _tokens(logits: np.ndarray, cost: float) -> np.ndarray:
    """Tokens a rollout of each problem: harder ones take longer."""
    return 500 * cost * (1 + 1.5 * (1 - _sigmoid(logits)))


def groups_of(cell: Cell, trials: int, seed: int) -> pa.Table:
    """Groups of both arms: step 0 once, step 1 under every seed. source: the trial."""
    rng, n = np.random.default_rng(seed), trials * cell.problems
    logits, scale = _logits(cell.population, rng, n), seed_scale(cell.population, cell.sd_pp)
    source = np.repeat([f"{i:05d}" for i in range(trials)], cell.problems)
    problem = np.array([f"{i:07d}" for i in range(n)])
    parts = []
    start = logits + rng.normal(0, cell.own, n)
    for arm, move, cost in (("a", 0.0, cell.cost), ("b", cell.shift, 1.0)):
        own = rng.normal(0, cell.own, n)
        policies: list[tuple[int, str, np.ndarray]] = [(0, "", start)]
        for s in range(cell.seeds):
            shared = np.repeat(scale * rng.normal(size=trials), cell.problems)
            policies.append((1, f"{arm}{s}", logits + own + move + shared))
        for step, adapter, logit in policies:
            correct = rng.binomial(G, _sigmoid(logit))
            mean = _tokens(logits, cost)
            parts.append(
                pa.table(
                    {
                        "arm": [arm] * n,
                        "step": pa.array([step] * n, pa.int32()),
                        "adapter": [adapter] * n,
                        "seed": pa.array([0] * n, pa.int64()),
                        "problem_id": problem,
                        "source": source,
                        "group_size": pa.array([G] * n, pa.int32()),
                        "num_correct": pa.array(correct, pa.int32()),
                        "num_tokens": pa.array((mean * rng.gamma(4 * G, 1 / 4, n)).astype(np.int64)),
                        "truncated": pa.array([0] * n, pa.int32()),
                    }
                )
            )
    return pa.concat_tables(parts)


Row = dict[str, Any]


def judged(figure: str, cell: Cell, rows: list[Row], truth: float) -> Row:
    """Of the trials' rows: share that covers the truth, share whose p is below .05 where the truth is 0, median width."""
    told = [r for r in rows if r.get("low") is not None]
    covers = [r["low"] - 1e-12 <= truth <= r["high"] + 1e-12 for r in told]
    tested = [r["p_value"] < 0.05 if r.get("p_value") is not None else False for r in rows]
    return {
        "figure": figure,
        "cell": cell,
        "trials": len(rows),
        "truth": truth,
        "printed": len(told) / len(rows),
        "covers": float(np.mean(covers)) if told else None,
        "width": float(np.median([r["high"] - r["low"] for r in told])) if told else None,
        "no_width": sum(r["high"] <= r["low"] for r in told),
        "below_05": float(np.mean(tested)) if any("p_value" in r for r in rows) else None,
    }


def measured(cell: Cell, trials: int, seed: int = 0) -> list[Row]:
    """Every figure of one cell."""
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
    rows = of_trial(contrasts_of(after, KS, 50, 0).to_pylist())
    for place, k in ((0, 1), (3, 8)):
        gap = truth["after"][0][place] - truth["after"][1][place]
        found.append(judged(f"gap at k = {k}", cell, [r for r in rows if r["metric"] == "gap" and r["k"] == k], gap))
    gain = truth["after"][1][0] - truth["before"]
    found.append(judged("gain", cell, [r for r in of_trial(gain_rows(groups)) if r["arm"] == "b"], gain))
    differ = truth["after"][0][0] - truth["after"][1][0]
    found.append(judged("difference of gains", cell, of_trial(gains_of(groups).to_pylist()), differ))
    costs = [r for r in of_trial(cost_rows(after)) if r["arm"] == "a"]
    found.append(judged("tokens per correct", cell, costs, truth["tokens"][0]))
    return found


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
    for population in POPULATIONS:
        for n in (20, 100, 300):
            yield Cell(population, n)
            if population != "zero-inflated":
                yield Cell(population, n, shift=0.6)
            for sd in (0.0, 1.0, 3.0, 6.0):
                if population == "ordinary" or sd == 1.0:
                    yield Cell(population, n, seeds=3, sd_pp=sd)
    yield Cell("near 0", 25, shift=1.0)
    for n in (20, 100, 300):
        yield Cell("ordinary", n, seeds=5, sd_pp=3.0)
        yield Cell("ordinary", n, cost=2.7, shift=0.6)


def misses(row: Row) -> str | None:
    """Which target a row misses by more than two standard errors of the simulation; null for none. Above HIGH counts
    only away from the edges."""
    if row["covers"] is None:
        return None
    error = 2 * np.sqrt(0.05 * 0.95 / row["trials"])
    if row["covers"] < LOW - error:
        return "covers too little"
    if row["covers"] > HIGH + error and not at_an_edge(row):
        return "wider than needed"
    return "no width" if row["no_width"] else None


def at_an_edge(row: Row) -> bool:
    """Fewer than five problems' worth of correct or of wrong, where no interval can be both short and safe."""
    cell, truth = row["cell"], row["truth"]
    level = row["figure"].startswith(("held-out", "pass"))
    few = level and cell.problems * min(truth, 1 - truth) < 5
    return few or cell.population in EDGES or row["figure"] == "simultaneous band"


def markdown(rows: list[Row]) -> str:
    out = [
        "| figure | problems of | n | seeds | seed SD, pp | shift | covers, % | median width | p < .05, % | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        c, covers = r["cell"], "–" if r["covers"] is None else f"{100 * r['covers']:.1f}"
        width = "" if r["width"] is None else f"{r['width']:.3g}"
        below = "" if r["below_05"] is None else f"{100 * r['below_05']:.1f}"
        about = f"{c.population} | {c.problems} | {c.seeds} | {c.sd_pp:g} | {c.shift:g}"
        out.append(f"| {r['figure']} | {about} | {covers} | {width} | {below} | {misses(r) or ''} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=250)
    parser.add_argument("--table", type=Path, help="write nothing anew: the table of what an earlier run printed")
    args = parser.parse_args()
    if args.table:
        kept = [json.loads(line) for line in args.table.read_text().splitlines()]
        rows = [row | {"cell": Cell(**row["cell"])} for row in kept]
        print(markdown(sorted(rows, key=lambda r: r["figure"])))
        return
    for cell in cells():
        for row in measured(cell, args.trials):
            print(json.dumps(row | {"cell": asdict(cell)}), flush=True)


if __name__ == "__main__":
    main()

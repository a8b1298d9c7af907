"""Coverage of the figures that look a second time, for benchmarks/coverage.py: lengths pair by pair, bands screened again,
seeds together, and the chain from diversity to gain. Each through the project's own table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.jobs import Job
from benchmarks.tally import tally
from storage.sql import query
from tasks.measures.chain import LINKS, chain_of
from tasks.measures.curves import gains_of
from tasks.measures.over_seeds import interquartile_mean, over_seeds_of
from tasks.measures.rescreening import HALVES, SECOND, rescreening_of
from tasks.measures.tokens import length_rows
from tests.measures.further_studies import SOURCES, chain_studies, length_studies, screenings, seeded_study
from tests.measures.simulated import POPULATIONS, Cell, G, groups_of, logits_of, seed_scale, sigmoid, truths

Row = dict[str, Any]
DOSES = ("least diverse", "middle", "most diverse")


def further_figures() -> Iterator[Job]:
    for n in (20, 100, 300):
        yield Job(f"token lengths, {n}", partial(lengths, n, 1), n / 5)
    for n, copies in ((100, 5), (300, 10)):
        yield Job(f"token lengths, {n}, in {copies}s", partial(lengths, n, copies), n / 5)
    for population in ("ordinary", "near 0", "near 1", "zero-inflated"):
        for n in (20, 100, 300):
            yield Job(f"rescreened, {population}, {n}", partial(rescreened, population, n), 60)
    for n, seeds, sd in ((30, 3, 1.0), (30, 5, 3.0), (100, 3, 0.0), (100, 3, 3.0), (100, 5, 1.0), (100, 5, 6.0)):
        yield Job(f"over seeds, {n}, {seeds}, {sd}", partial(over_seeds, n, seeds, sd), 40)
    for population in ("near 0", "near 1"):
        for n, seeds in ((10, 3), (30, 3), (30, 5)):
            yield Job(f"over seeds, {population}, {n}, {seeds}", partial(at_an_edge, population, n, seeds), 10)
    for n, seeds, effect in ((20, 1, 0.0), (100, 1, 0.0), (300, 1, 0.0), (100, 3, 0.0), (100, 1, 0.08), (100, 3, 0.08)):
        yield Job(f"chain, {n}, {seeds}, {effect}", partial(chain, n, seeds, effect), n * seeds / 2)


def summary_of(figure: str, design: str, rows: Sequence[Row], truths: Sequence[float]) -> Row:
    return {"figure": figure, "design": design, "trials": len(rows)} | tally(rows, truths)


def lengths(n: int, copies: int, trials: int, seed: int = 0) -> list[Row]:
    """The ratio of two arms' lengths, problem by problem, where they are alike and where the second's are a fifth longer
    in a way that differs from problem to problem; of all pairs, and of those both of which are correct."""
    out, design = [], f"n = {n}" + (f", in {copies}s" if copies > 1 else "")
    for ratio in (1.0, 1.2):
        studies, cluster_of = length_studies(n, trials, ratio, 10 * seed, copies)
        found = _ratios(length_rows(studies, cluster_of))
        for bucket in ("all_paired", "both_correct"):
            truth = lengths_truth(ratio)[bucket]
            mine = [r for r in found if r["bucket"] == bucket]
            name = f"ratio of lengths, {bucket.replace('_', ' ')}" + (", arms alike" if ratio == 1 else "")
            out.append(summary_of(name, design, mine, [truth] * len(mine)) | {"truth": truth})
    return out


@cache
def lengths_truth(ratio: float) -> dict[str, float]:
    """Return the figures of the same table over 20,000 problems, which stand for the truth."""
    endless = _ratios(length_rows(length_studies(20_000, 1, ratio, 1)[0]))
    return {r["bucket"]: r["ratio_geomean"] for r in endless}


def _ratios(rows: Sequence[Row]) -> list[Row]:
    kept = [r for r in rows if r.get("source", "all") != "all"]
    ends = ("low", "high")
    return [r | {e: r.get(f"ratio_{e}") for e in ends} | {"p_value": r["p_wilcoxon"]} for r in kept]


def rescreened(population: str, n: int, trials: int, seed: int = 0) -> list[Row]:
    """Measured figures against what the population gives; those that a second draw's prediction is of, against what it
    gives for the counts that were seen."""
    bands, again = screenings(population, n, trials, seed)
    found = rescreening_of(bands, again).to_pylist()
    same, dead, revived = _of_pairs(chance := POPULATIONS[population](np.random.default_rng(3), 400_000))
    half = _of_pairs(chance, G // 2)
    counts_T = bands["num_correct"].to_numpy().reshape(trials, n)
    expected_C = _given_counts(chance)
    out = []
    for draw, measured in ((SECOND, (same, revived / dead)), (HALVES, (half[0], half[2] / half[1]))):
        for metric, truth in zip(("agreement", "mislabelled"), measured, strict=True):
            mine = [r for r in found if (r["draw"], r["metric"], r["band"]) == (draw, metric, None)]
            design = f"{population}, n = {n}"
            out.append(summary_of(f"{metric}, {draw}", design, mine, [truth] * len(mine)))
            truths = [truth] * len(mine)
            if draw == SECOND:
                truths = [_expected(counts, expected_C, metric) for counts in counts_T]
            guessed = [{"low": r["predicted_low"], "high": r["predicted_high"]} for r in mine]
            out.append(summary_of(f"{metric}, {draw}, predicted", design, guessed, truths))
    return out


def _of_pairs(chance: np.ndarray, size: int = G) -> tuple[float, float, float]:
    """Chances over problems: both draws give the same band; the first calls the problem dead; and the second revives."""
    zero, one = (1 - chance) ** size, chance**size
    live = 1 - zero - one
    dead = zero + one
    return float((zero**2 + one**2 + live**2).mean()), float(dead.mean()), float((dead * live).mean())


def _given_counts(chance: np.ndarray) -> np.ndarray:
    """(C, 3) chances of a second draw's bands, in their order, for a problem with c = 0 … G correct in the first."""
    rows = []
    for c in range(G + 1):
        weight = chance**c * (1 - chance) ** (G - c)
        zero, one = (float((weight * p).sum() / weight.sum()) for p in ((1 - chance) ** G, chance**G))
        rows.append((zero, 1 - zero - one, one))
    return np.array(rows)


def _expected(counts: np.ndarray, expected_C: np.ndarray, metric: str) -> float:
    own = np.where(counts == 0, 0, np.where(counts == G, 2, 1))
    if metric == "agreement":
        return float(expected_C[counts, own].mean())
    dead = counts[own != 1]
    return float(expected_C[dead, 1].mean()) if len(dead) else np.nan


def over_seeds(n: int, seeds: int, sd: float, trials: int, seed: int = 0) -> list[Row]:
    """The chance of improvement is of more seeds on the same problems, which differ from study to study."""
    level = _interquartile_truth(sd)
    design = f"3 sources of {n}, {seeds} seeds, SD {sd:g}"
    means, alike, better = [], [], []
    truths = []
    for trial in range(trials):
        for shift, kept in ((0.0, alike), (0.5, better)):
            groups, chances = seeded_study(
                n, seeds, sd, shift, rng := np.random.default_rng([seed, trial, int(10 * shift)])
            )
            rows = over_seeds_of(groups, 0).to_pylist()
            kept += [r for r in rows if r["metric"] == "probability of improvement" and r["source"] == "all"]
            if not shift:
                means += [r for r in rows if r["metric"] == "interquartile mean" and r["arm"] == "b"]
            else:
                truths.append(_improves(*(_scores(chances(arm, 300), rng) for arm in ("a", "b"))))
    chances_of = "probability of improvement"
    return [
        summary_of("interquartile mean", design, means, [level] * trials),
        summary_of(f"{chances_of}, arms alike", design, alike, [0.5] * trials) | {"below_05": _excludes_half(alike)},
        summary_of(f"{chances_of}, first better", design, better, truths) | {"below_05": _excludes_half(better)},
    ]


def at_an_edge(population: str, n: int, seeds: int, trials: int, seed: int = 0) -> list[Row]:
    """The interquartile mean where most scores are nearly 0 or 1; seeds differ by a point."""
    means = []
    for trial in range(trials):
        groups, _ = seeded_study(n, seeds, 1.0, 0.0, np.random.default_rng([seed, trial]), population)
        rows = over_seeds_of(query("from groups where arm = 'b'", groups=groups), 0).to_pylist()
        means += [r for r in rows if r["metric"] == "interquartile mean"]
    design = f"{population}, 3 sources of {n}, {seeds} seeds, SD 1"
    return [summary_of("interquartile mean", design, means, [_interquartile_truth(1.0, population)] * trials)]


@cache
def _interquartile_truth(sd: float, population: str = "ordinary") -> float:
    """Over seeds without end and problems without end."""
    rng, scale = np.random.default_rng(4), seed_scale(population, sd)
    shift = scale * rng.normal(size=400) if sd else np.zeros(1)
    scores = []
    for move in SOURCES:
        logits = logits_of(population, rng, 200_000) + rng.normal(0, 0.3, 200_000) + move
        scores.append([float(sigmoid(logits + s).mean()) for s in shift])
    return interquartile_mean(np.array(scores))


def _scores(chance_SP: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.binomial(G, chance_SP).mean(axis=1)


def _improves(first: np.ndarray, second: np.ndarray) -> float:
    away = first[:, None] - second[None, :]
    return float(((away > 0) + 0.5 * (away == 0)).mean())


def _excludes_half(rows: Sequence[Row]) -> float | None:
    kept = [not r["low"] <= 0.5 <= r["high"] for r in rows if r["low"] is not None]
    return float(np.mean(kept)) if kept else None


def chain(n: int, seeds: int, effect: float, trials: int, seed: int = 0) -> list[Row]:
    by_seed = 0.02 if seeds > 1 else 0.0
    found = _of_studies(chain_of(*chain_studies(n, trials, seeds, effect, 10 * seed, by_seed)))
    design = f"n = {n}, {seeds} seed{'s' if seeds > 1 else ''}, effect {effect:g}"
    out = []
    for name, dose in (*((link, None) for link in LINKS), *(("gain by dose", dose) for dose in DOSES)):
        truth = chain_truth(effect)[name, dose]
        mine = [r for r in found if (r["metric"], r["dose"]) == (name, dose)]
        row = summary_of(name if dose is None else f"{name}, {dose}", design, mine, [truth] * len(mine))
        out.append(row | {"truth": truth} | ({} if dose is None else {"below_05": None}))
    return out


@cache
def chain_truth(effect: float) -> dict[tuple[str, str | None], float]:
    """Return the figures of the same table over 20,000 problems, which stand for the truth."""
    endless = chain_of(*chain_studies(20_000, 1, 1, effect, 1)).to_pylist()
    return {(r["metric"], r["dose"]): r["estimate"] for r in endless if r["source"] == "all"}


def _of_studies(table: pa.Table) -> list[Row]:
    return [r for r in table.to_pylist() if r["source"] != "all"]


# Looks at a growing study: does the confidence sequence of the difference of gains hold the truth at all of them?


@dataclass(frozen=True, slots=True)
class Growth:
    """sizes: (problems, seeds) at each look. anew: every look has adapters of its own, as where problems that are held
    out later were trained on before."""

    population: str
    sizes: tuple[tuple[int, int], ...]
    sd_pp: float = 0.0
    shift: float = 0.0
    anew: bool = False

    @property
    def name(self) -> str:
        sizes = ", ".join(f"{n}×{seeds}" for n, seeds in self.sizes)
        anew = ", trained anew" if self.anew else ""
        return f"{self.population}, {sizes}, SD {self.sd_pp:g}{anew}, shift {self.shift:g}"


def looked_at(growth: Growth, trials: int, seed: int) -> list[Row]:
    """Share of studies in which each kind of interval holds the truth at all looks; below_05: in which it excludes 0 at
    one or more of them. width: median at the last look. edge: of a few looks a sequence covers more than 95 %."""
    sizes = growth.sizes
    total = sum(s for _, s in sizes) if growth.anew else max(s for _, s in sizes)
    cell = Cell(growth.population, max(n for n, _ in sizes), total, growth.sd_pp, growth.shift)
    first, second = (after[0] for after in truths(cell)["after"])
    groups, begin = groups_of(cell, trials, seed), 0
    ends = {"confidence sequence": ("sequence_low", "sequence_high"), "fixed interval": ("low", "high")}
    held, excluded = ({name: np.full(trials, start) for name in ends} for start in (True, False))
    width = dict.fromkeys(ends, 0.0)
    for n, seeds in sizes:
        part = query(
            """from groups where problem_id::int % $whole < $n
               and (step = 0 or adapter[2:]::int between $first and $last)""",
            {"whole": cell.problems, "n": n, "first": begin, "last": begin + seeds - 1},
            groups=groups,
        )
        begin += seeds if growth.anew else 0
        rows = [row for row in gains_of(part).to_pylist() if row["source"] != "all"]
        for name, (low, high) in ends.items():
            low_T, high_T = (np.array([row[end] for row in rows], float) for end in (low, high))
            held[name] &= ~((low_T > first - second) | (high_T < first - second))
            excluded[name] |= (low_T > 0) | (high_T < 0)
            width[name] = float(np.nanmedian(high_T - low_T))
    return [
        {"figure": f"{name}, all looks", "design": growth.name, "trials": trials, "printed": 1.0, "no_width": 0}
        | {
            "edge": True,
            "covers": float(held[name].mean()),
            "below_05": float(excluded[name].mean()),
            "width": width[name],
        }
        for name in ends
    ]


def growths() -> Iterator[Growth]:
    seeds = tuple((100, s) for s in (2, 3, 5, 8))
    for sd in (0.0, 1.0, 3.0, 6.0):
        yield Growth("ordinary", seeds, sd)
    yield Growth("near 0", seeds, 1.0)
    yield Growth("near 1", seeds, 1.0)
    yield Growth("ordinary", tuple((n, 1) for n in (25, 50, 100, 200, 300)))
    yield Growth("ordinary", tuple((n, 1) for n in range(30, 301, 30)))
    both = ((50, 3), (100, 4), (200, 5), (300, 6))
    yield Growth("ordinary", both, 3.0)
    yield Growth("ordinary", both, 3.0, anew=True)
    yield Growth("ordinary", seeds, 1.0, shift=0.6)
    yield Growth("ordinary", both, 3.0, shift=0.6)
    yield Growth("ordinary", tuple((n, 1) for n in (25, 50, 100, 200, 300)), shift=0.6)


def looks() -> Iterator[Job]:
    for growth in growths():
        work = sum(n * (1 + 2 * seeds) for n, seeds in growth.sizes) / 200
        yield Job(f"looks, {growth.name}", partial(looked_at, growth), work)

"""Coverage of the intervals of width, over simulated studies of known truth, through the project's own table, and of its
rank correlations, for benchmarks/coverage.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import asin, pi
from typing import Any

import numpy as np

from benchmarks.jobs import Job
from benchmarks.tally import near_edge, tally
from tasks.domain.statistics.rank_correlation import rank_correlation
from tasks.measures.width.group import Group
from tasks.measures.width.looked_at import LookedAt
from tasks.measures.width.registry import MEASURES
from tasks.measures.width.values import Problem, Series
from tasks.measures.width.windows import windows_of
from tasks.measures.widths import summarised

Row = dict[str, Any]
N, K, CLASSES = 8, 4, 12
#: Of classes and vectors; of words, which take twenty times as long.
SHOWN = {
    "classes": (
        "distinct_k", "utility_k", "semantic_entropy", "semantic_entropy_likelihood", "semantic_entropy_sequence", "vendi"
    ),
    "words": ("self_bleu", "ead"),
}  # fmt: skip
LENGTH, VOCABULARY, OTHERWISE = 16, 60, 0.3  # words of a window, different ones, share that a rollout says otherwise
#: How concentrated a problem's answers are: Dirichlet's parameter, drawn per problem between two ends.
POPULATIONS = {"ordinary": (0.02, 1.0), "narrow": (0.002, 0.01), "wide": (2.0, 20.0)}
STUDIES = {"classes": 200, "words": 40}  # of which a truth is the mean


@dataclass(frozen=True, slots=True)
class Cell:
    population: str
    problems: int
    seeds: int = 1
    sd: float = 0.0  # of the logarithm of the parameter, over seeds


def drawn(cell: Cell, rng: np.random.Generator) -> list[Problem]:
    """One study: rollouts of the same problems under every seed. Class 0 is the correct one."""
    low, high = POPULATIONS[cell.population]
    vectors_CD, made = np.eye(CLASSES) + 0.3, []
    vectors_CD /= np.linalg.norm(vectors_CD, axis=1, keepdims=True)
    tilt_S = cell.sd * rng.normal(size=cell.seeds)
    said_CL = np.random.default_rng(7).integers(VOCABULARY, size=(CLASSES, LENGTH))
    for place in range(cell.problems):
        around, draw = np.exp(rng.uniform(np.log(low), np.log(high))), rng.random(CLASSES)
        for seed in range(cell.seeds):
            share_C = shares_of(around * np.exp(tilt_S[seed]), draw, rng)
            class_N = rng.choice(CLASSES, N, p=share_C)
            group = Group(
                class_N=class_N,
                correct_N=class_N == 0,
                logprob_N=np.log(share_C[class_N]) + rng.normal(size=N),
                num_tokens_N=np.ones(N),
                vectors_ND=vectors_CD[class_N],
                windows=windows_of(_spoken(said_CL[class_N], rng).tolist(), [LENGTH])[LENGTH],
                vocabulary=VOCABULARY,
            )
            name = f"p{place:05d}"
            adapter = f"seed-{seed}" if cell.seeds > 1 else ""
            made.append(Problem("a", 0, adapter, name, name, group, {"answer": class_N}, {}))
    return made


def _spoken(words_NL: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a class says, with some words drawn anew."""
    return np.where(rng.random(words_NL.shape) < OTHERWISE, rng.integers(VOCABULARY, size=words_NL.shape), words_NL)


def shares_of(concentration: float, draw_C: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Dirichlet shares whose likeliest class is the problem's own, whatever the seed."""
    share_C = np.sort(rng.dirichlet(np.full(CLASSES, concentration)))[::-1]
    out_C = np.empty(CLASSES)
    out_C[np.argsort(draw_C)] = share_C
    return out_C


def judged(cell: Cell, of: str, trials: int, seed: int = 0) -> list[Row]:
    trials = trials if of == "classes" else max(trials // 5, 1)
    chosen = [m for m in MEASURES if m.name in SHOWN[of]]
    series = [Series(m, "answer" if m.of == "partition" else None, "all", None) for m in chosen]
    truths = truth_of(cell, series, STUDIES[of])
    found: list[list[Row]] = [[] for _ in series]
    most_of = [0.0] * len(series)
    for trial in range(trials):
        seen = looked_at(series, drawn(cell, np.random.default_rng([seed, trial, cell.problems, cell.seeds])))
        for i, one in enumerate(series):
            value_PS, most, why = seen.values(one, K)
            most_of[i] = max(most, most_of[i])
            found[i].append(summarised(one, seen, value_PS, most, why))
    design = f"{cell.population} answers, n = {cell.problems}, {cell.seeds} seed{'s' if cell.seeds > 1 else ''}"
    return [
        {"figure": f"{one.measure.name} of {K} of {N}", "design": design, "trials": trials, "truth": truth}
        | tally(rows, [truth] * trials)
        | {"below_05": None, "edge": near_edge(cell.problems, (truth - one.measure.least) / (most - one.measure.least))}
        for one, rows, truth, most in zip(series, found, truths, most_of, strict=True)
    ]


def looked_at(series: list[Series], problems: list[Problem]) -> LookedAt:
    seen = LookedAt(series, [K], {})
    for problem in problems:
        seen.add(problem)
    return seen


def truth_of(cell: Cell, series: list[Series], studies: int) -> list[float]:
    """The mean over many studies of one seed each."""
    rng, alone, sums = np.random.default_rng(99), replace(cell, problems=100, seeds=1), np.zeros(len(series))
    for _ in range(studies):
        seen = looked_at(series, drawn(alone, rng))
        for i, one in enumerate(series):
            sums[i] += np.nanmean(seen.values(one, K)[0])
    return (sums / studies).tolist()


def correlated(cut: bool, trials: int, seed: int = 0) -> list[Row]:
    """Of normals, and of the same cut into five values, whose truth is that of many."""
    rows = []
    for rho in (0.0, 0.5, 0.9):
        for n in (20, 100):
            rng = np.random.default_rng([seed, n, int(10 * rho), cut])
            truth = _ranks_of_five(rho) if cut else 6 / pi * asin(rho / 2)
            found = [rank_correlation(*pair(n, rho, rng, cut), np.arange(n)) for _ in range(trials)]
            ends = [{"low": f.low, "high": f.high} for f in found]
            about = {"figure": f"rank correlation, {'of five values' if cut else 'continuous'}", "trials": trials}
            rows.append(about | {"design": f"n = {n}, ρ = {rho}", "truth": truth} | tally(ends, [truth] * trials))
    return rows


def _ranks_of_five(rho: float) -> float:
    values = pair(200_000, rho, np.random.default_rng(int(10 * rho)), True)
    ranks = [np.searchsorted(np.sort(v), v, "left") + np.searchsorted(np.sort(v), v, "right") for v in values]
    return float(np.corrcoef(ranks)[0, 1])


def pair(n: int, rho: float, rng: np.random.Generator, cut: bool) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=n)
    y = rho * x + (1 - rho**2) ** 0.5 * rng.normal(size=n)
    edges = np.array([-1.0, 0.0, 0.5, 1.5])
    return (np.digitize(x, edges).astype(float), np.digitize(y, edges).astype(float)) if cut else (x, y)


def of_widths() -> Iterator[Job]:
    cells = [Cell(population, n) for population in POPULATIONS for n in (20, 100)]
    for cell in [*cells, *(Cell("ordinary", n, 3, 0.5) for n in (20, 100))]:
        for of in SHOWN:
            name = f"width of {of}, {cell.population}, {cell.problems}, {cell.seeds}"
            yield Job(name, partial(judged, cell, of), cell.problems * cell.seeds / 2)
    for cut in (False, True):
        yield Job(f"rank correlation, {'cut' if cut else 'continuous'}", partial(correlated, cut), 5)

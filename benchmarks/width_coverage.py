"""Coverage of the intervals of width, over simulated studies of known truth, through the project's own table; and of its
rank correlations. Writes the rows of docs/coverage.md.

    python -m benchmarks.width_coverage [--trials 400] [--of words]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import asin, pi

import numpy as np

from tasks.domain.statistics.rank_correlation import rank_correlation
from tasks.measures.width.group import Group
from tasks.measures.width.registry import MEASURES
from tasks.measures.width.values import Problem, Series
from tasks.measures.widths import measured, summarised

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
                words=[[str(word) for word in words] for words in _spoken(said_CL[class_N], rng)],
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


def judged(cell: Cell, trials: int, of: str) -> Iterator[str]:
    chosen = [m for m in MEASURES if m.name in SHOWN[of]]
    series = [Series(m, "answer" if m.of == "partition" else None, "all", None) for m in chosen]
    truths = truth_of(cell, series, STUDIES[of])
    inside, width, none = (np.zeros(len(series)) for _ in range(3))
    for trial in range(trials):
        problems = drawn(cell, np.random.default_rng([trial, cell.problems, cell.seeds]))
        for i, one in enumerate(series):
            values, most, why = measured(one, K, [(p, p.group) for p in problems])
            row = summarised(one, problems, values, most, why)
            if row.get("low") is None:
                none[i] += 1
                continue
            inside[i] += row["low"] <= truths[i] <= row["high"]
            width[i] += row["high"] - row["low"]
            assert row["high"] > row["low"]
    for i, one in enumerate(series):
        share = inside[i] / max(trials - none[i], 1)
        error = (share * (1 - share) / trials) ** 0.5
        yield (
            f"| {one.measure.name} of {K} of {N} | {cell.population} | {cell.problems} | {cell.seeds} | {cell.sd} |"
            f" {truths[i]:.3f} | {100 * share:.1f} ± {100 * error:.1f} | {width[i] / max(trials - none[i], 1):.3f} |"
        )


def truth_of(cell: Cell, series: list[Series], studies: int) -> list[float]:
    """The mean over many studies of one seed each."""
    rng, alone, sums = np.random.default_rng(99), replace(cell, problems=100, seeds=1), np.zeros(len(series))
    for _ in range(studies):
        views = [(p, p.group) for p in drawn(alone, rng)]
        for i, one in enumerate(series):
            sums[i] += np.mean([v for by in measured(one, K, views)[0].values() for v in by.values()])
    return (sums / studies).tolist()


def correlated(trials: int) -> Iterator[str]:
    """Of normals, and of the same cut into five values, whose truth is that of many."""
    for cut in (False, True):
        for rho in (0.0, 0.5, 0.9):
            for n in (20, 100):
                rng = np.random.default_rng([n, int(10 * rho), cut])
                truth = 6 / pi * asin(rho / 2)
                if cut:
                    x, y = pair(200_000, rho, rng, cut)
                    ranks = [
                        np.searchsorted(np.sort(v), v, "left") + np.searchsorted(np.sort(v), v, "right") for v in (x, y)
                    ]
                    truth = float(np.corrcoef(ranks)[0, 1])
                found = [rank_correlation(*pair(n, rho, rng, cut), np.arange(n)) for _ in range(trials)]
                kept = [f for f in found if f.low is not None and f.high is not None]
                share = np.mean([f.low <= truth <= f.high for f in kept])  # type: ignore[operator]
                error = (share * (1 - share) / len(kept)) ** 0.5
                kind = "of five values" if cut else "continuous"
                yield f"| rank correlation, {kind} | {truth:.3f} | {n} | {100 * share:.1f} ± {100 * error:.1f} |"


def pair(n: int, rho: float, rng: np.random.Generator, cut: bool) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=n)
    y = rho * x + (1 - rho**2) ** 0.5 * rng.normal(size=n)
    edges = np.array([-1.0, 0.0, 0.5, 1.5])
    return (np.digitize(x, edges).astype(float), np.digitize(y, edges).astype(float)) if cut else (x, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--of", choices=tuple(SHOWN), default="classes")
    args = parser.parse_args()
    trials = args.trials
    print("| interval of | answers | problems | seeds | sd over seeds | truth | covers, % | mean width |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    cells = [Cell(population, n) for population in POPULATIONS for n in (20, 100)]
    for cell in [*cells, *(Cell("ordinary", n, 3, 0.5) for n in (20, 100))]:
        for line in judged(cell, trials, args.of):
            print(line, flush=True)
    if args.of == "words":
        return
    print("\n| interval of | truth | problems | covers, % |\n|---|---|---|---|", flush=True)
    for line in correlated(trials):
        print(line, flush=True)


if __name__ == "__main__":
    main()

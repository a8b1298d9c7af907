"""Simulated studies of known truth for benchmarks/coverage.py: two arms before and after training.

A problem's chance of a correct rollout has a logit that its population gives, plus the arm's shift, plus a seed's shift
that all problems share, plus what is the problem's own under each arm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import factorial
from typing import Any

import numpy as np
import pyarrow as pa

G, KS, TRAIN_G = 8, (1, 2, 4, 8), 16
#: Logits of the chance of a correct rollout. `ordinary`: the fit to the published panel screening; `near 0`: HMMT-like;
#: `near 1`: thinking on MATH-500; `easy`: pass@8 near its ceiling; `zero-inflated`: three problems in five that no rollout solves.
POPULATIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "ordinary": lambda rng, n: rng.beta(0.277, 1.322, n),
    "near 0": lambda rng, n: rng.beta(0.06, 1.94, n),
    "near 1": lambda rng, n: rng.beta(6.0, 0.15, n),
    "middling": lambda rng, n: rng.beta(1.0, 1.5, n),
    "easy": lambda rng, n: rng.beta(3.0, 1.0, n),
    "zero-inflated": lambda rng, n: np.where(rng.random(n) < 0.6, 1e-9, rng.beta(1.0, 1.0, n)),
}
EDGES = ("near 0", "near 1")
WRONG = 3  # wrong answers that a problem has
ANSWERING = 0.8  # share of wrong rollouts that give an answer


@dataclass(frozen=True, slots=True)
class Cell:
    """shift: what training adds to the second arm's logits beyond the first's; sd_pp: standard deviation of a seed's
    accuracy, percentage points, or `logits` of its shift; cost: tokens of a rollout of the first arm over those of the
    second; copies: how many near-duplicates there are of every problem; fewer: seeds that the second arm lacks."""

    population: str
    problems: int
    seeds: int = 1
    sd_pp: float = 0.0
    shift: float = 0.0
    cost: float = 1.0
    own: float = 0.3
    logits: float = 0.0
    copies: int = 1
    fewer: int = 0

    @property
    def design(self) -> str:
        said = [f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"]
        if self.seeds > 1:
            said.append(f"SD {self.logits:g} logits" if self.logits else f"SD {self.sd_pp:g}")
        said += [f"shift {self.shift:.2g}"] if self.shift else []
        said += [f"cost {self.cost:g}"] if self.cost != 1 else []
        said += [f"in {self.copies}s"] if self.copies > 1 else []
        return ", ".join([*said, *([f"{self.fewer} fewer in b"] if self.fewer else [])])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def logits_of(population: str, rng: np.random.Generator, n: int) -> np.ndarray:
    p = np.clip(POPULATIONS[population](rng, n), 1e-9, 1 - 1e-9)
    return np.log(p) - np.log1p(-p)


@lru_cache
def seed_scale(population: str, sd_pp: float) -> float:
    """The standard deviation of a seed's shift in logits that gives its accuracy this standard deviation."""
    if sd_pp == 0:
        return 0.0
    from scipy.optimize import brentq

    rng = np.random.default_rng(1)
    logits, shifts = logits_of(population, rng, 20_000), np.linspace(-5, 5, 61)
    weight = np.exp(-(shifts**2) / 2) / np.exp(-(shifts**2) / 2).sum()

    def excess(scale: float) -> float:
        means = np.array([sigmoid(logits + scale * s).mean() for s in shifts])
        return float(np.sqrt(weight @ (means - weight @ means) ** 2)) - sd_pp / 100

    found: Any = brentq(excess, 0.0, 8.0, xtol=1e-3)
    return float(found)


def scale_of(cell: Cell) -> float:
    return cell.logits or seed_scale(cell.population, cell.sd_pp)


@lru_cache
def truths(cell: Cell) -> dict[str, Any]:
    """pass@k by arm after training, and mean tokens a correct answer, over problems and seeds without end."""
    rng, many = np.random.default_rng(2), 400_000
    logits, scale = logits_of(cell.population, rng, many), scale_of(cell)
    own = rng.normal(0, cell.own, (3, many))
    before = sigmoid(logits + own[0])
    after = [sigmoid(logits + own[i] + move + scale * rng.normal(size=many)) for i, move in ((1, 0.0), (2, cell.shift))]
    return {
        "before": before.mean(),
        "after": [[float((1 - (1 - p) ** k).mean()) for k in KS] for p in after],
        "all": [[float((p**k).mean()) for k in KS] for p in after],
        "g_pass": [_g_pass(p[:100_000]) for p in after],
        "moving": _moving(before, after),
        "live": [_live(p, G) for p in after],
        "live_at_training": [_live(p, TRAIN_G) for p in after],
        "majority": [float(_majority(p[:100_000]).mean()) for p in after],
        "tokens": [
            float(_tokens(logits, cost).mean() / p.mean()) for p, cost in zip(after, (cell.cost, 1.0), strict=True)
        ],
    }


def _moving(before: np.ndarray, after: list[np.ndarray]) -> dict[str, float]:
    """Share of the problems that a difference rests on, in effect: one over its kurtosis. By figure."""
    from storage.estimates import pass_at_k

    rng, size = np.random.default_rng(3), np.full(100_000, G)
    start, one, other = (np.asarray(pass_at_k(size, rng.binomial(G, p[: len(size)]), (1, G))) for p in (before, *after))
    differ = {"gap at k = 1": one[:, 0] - other[:, 0], f"gap at k = {G}": one[:, 1] - other[:, 1]}
    differ |= {"gain": other[:, 0] - start[:, 0], f"gain of pass@{G}": other[:, 1] - start[:, 1]}
    differ["difference of gains"] = differ["gap at k = 1"]
    away = {figure: d - d.mean() for figure, d in differ.items()}
    return {figure: float((d**2).mean() ** 2 / max((d**4).mean(), 1e-12)) for figure, d in away.items()}


def _g_pass(p: np.ndarray) -> dict[int | None, float]:
    """Chance that so many or more of 8 rollouts are right; under null its mean over what is above a half."""
    from scipy.stats import binom

    tails = {wanted: float(binom.sf(wanted - 1, 8, p).mean()) for wanted in range(4, 9)}
    return {4: tails[4], None: float(np.mean([tails[wanted] for wanted in range(5, 9)]))}


def _live(p: np.ndarray, size: int) -> float:
    return float((1 - p**size - (1 - p) ** size).mean())


def _majority(p: np.ndarray) -> np.ndarray:
    """Chance that the most frequent of four answers is right, ties shared: wrong answers are one of WRONG, alike."""
    chances = np.stack([p, *[(1 - p) / WRONG] * WRONG], axis=1)
    total = np.zeros(len(p))
    for counts in product(range(5), repeat=1 + WRONG):
        if sum(counts) != 4:
            continue
        ways = factorial(4) / np.prod([factorial(c) for c in counts])
        share = (counts[0] == max(counts)) / counts.count(max(counts))
        total += share * ways * np.prod(chances ** np.array(counts), axis=1)
    return total


@lru_cache
def shift_by(effect: float) -> float:
    """The shift of logits by which training moves accuracy on ordinary problems by this much."""
    from scipy.optimize import brentq

    rng = np.random.default_rng(4)
    logits = logits_of("ordinary", rng, 200_000) + rng.normal(0, Cell("ordinary", 1).own, 200_000)
    start = sigmoid(logits).mean()
    found: Any = brentq(lambda shift: sigmoid(logits + shift).mean() - start - effect, 0.0, 5.0)
    return float(found)


def rollouts_of(groups: pa.Table) -> pa.Table:
    """Rollouts that give these groups: right answers alike, each wrong one of WRONG."""
    rng, size = np.random.default_rng(6), groups["group_size"].to_numpy()
    row = np.repeat(np.arange(groups.num_rows), size)
    place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
    correct = place < groups["num_correct"].to_numpy()[row]
    answer = np.where(correct, 0, 1 + rng.integers(WRONG, size=len(row)))
    kept = groups.select(["arm", "step", "adapter", "seed", "problem_id", "cluster", "source"]).take(pa.array(row))
    extra = {"rollout": pa.array(place, pa.int32()), "answer_class": answer, "correct": correct}
    for name, values in (extra | {"num_tokens": np.full(len(row), 10), "logprob_sum": np.full(len(row), -1.0)}).items():
        kept = kept.append_column(name, pa.array(values))
    return kept


def _tokens(logits: np.ndarray, cost: float) -> np.ndarray:
    """Tokens a rollout of each problem: harder ones take longer."""
    return 500 * cost * (1 + 1.5 * (1 - sigmoid(logits)))


def group_rows(
    arm: str, step: int, adapter: str, problem: Any, source: Any, size: int, correct: Any, **columns: Any
) -> pa.Table:
    """Groups of one policy. problem, correct: one a group; source and columns: one a group, or one for all."""
    n = len(problem)
    shared = {"source": source, "num_tokens": 10 * size, "truncated": 0} | columns
    wide = {name: [v] * n if isinstance(v, str | int) else v for name, v in shared.items()}
    policy = {"arm": [arm] * n, "step": [step] * n, "adapter": [adapter] * n, "seed": [0] * n}
    table = pa.table(policy | {"problem_id": problem, "group_size": [size] * n, "num_correct": correct} | wide)
    small = {name: pa.int32() for name in ("step", "group_size", "num_correct", "truncated", "num_answered")}
    return table.cast(pa.schema([pa.field(f.name, small.get(f.name, f.type)) for f in table.schema]))


def names(n: int) -> np.ndarray:
    """Names of problems or studies."""
    return np.array([f"{i:07d}" for i in range(n)])


def groups_of(cell: Cell, trials: int, seed: int) -> pa.Table:
    """Groups of both arms: step 0 once, step 1 under every seed. source: the trial."""
    rng, n = np.random.default_rng(seed), trials * cell.problems
    scale = scale_of(cell)

    def of_each(distinct: np.ndarray) -> np.ndarray:
        return np.repeat(distinct, cell.copies)

    logits = of_each(logits_of(cell.population, rng, n // cell.copies))
    source, problem, parts = np.repeat([f"{i:05d}" for i in range(trials)], cell.problems), names(n), []
    cluster = of_each(problem[:: cell.copies])
    start = logits + of_each(rng.normal(0, cell.own, n // cell.copies))
    for arm, move, cost in (("a", 0.0, cell.cost), ("b", cell.shift, 1.0)):
        own = of_each(rng.normal(0, cell.own, n // cell.copies))
        policies: list[tuple[int, str, np.ndarray]] = [(0, "", start)]
        for s in range(cell.seeds - (cell.fewer if arm == "b" else 0)):
            shared = np.repeat(scale * rng.normal(size=trials), cell.problems)
            policies.append((1, f"{arm}{s}", logits + own + move + shared))
        for step, adapter, logit in policies:
            correct, mean = rng.binomial(G, sigmoid(logit)), _tokens(logits, cost)
            counted = {"num_tokens": (mean * rng.gamma(4 * G, 1 / 4, n)).astype(np.int64), "cluster": cluster}
            counted["num_answered"] = correct + rng.binomial(G - correct, ANSWERING)
            parts.append(group_rows(arm, step, adapter, problem, source, G, correct, **counted))
    return pa.concat_tables(parts)

"""Looks at a growing study, for benchmarks/coverage.py: does the confidence sequence of the difference of gains hold the
truth at all of them together, and what does it cost beside the fixed interval? Through the project's own table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.jobs import Job
from storage.sql import query
from tasks.measures.curves import gains_of
from tests.measures.simulated import Cell, groups_of, truths

Row = dict[str, Any]


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

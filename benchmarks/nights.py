"""False alarms of nightly re-evaluation over 90 nights, and how soon it finds a drop, by simulation.

    python -m benchmarks.nights --trials 300 --workers 32

writes the tables of docs/coverage.md, "Nights". Difficulty: Beta(.5, .35) over problems, mean .59.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, product

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from tasks.domain.statistics.nights import QUARTER, level_of, look

SHAPE = (0.5, 0.35)


@dataclass(frozen=True, slots=True)
class Cell:
    """n problems and G rollouts of each; from night `changed` on accuracy is lower by `drop`.

    small: problems of the canary, with which nights are drawn at which the machine did not change; 0: whole nights.
    """

    n: int
    G: int
    changed: int = 0
    drop: float = 0.0
    small: int = 0

    @property
    def name(self) -> str:
        return f"n = {self.n}, G = {self.G}" + (f", canary of {self.small}" if self.small else "")


def first_alarm(cell: Cell, seed: int, nights: int) -> int:
    """The first night of an alarm; 0 for none."""
    rng = np.random.default_rng([seed, cell.n, cell.G, cell.changed, cell.small])
    before_P = np.clip(rng.beta(*SHAPE, cell.n), 1e-6, 1 - 1e-6)
    moved = lambda shift: expit(logit(before_P) - shift)  # noqa: E731
    lost = lambda shift: (before_P - moved(shift)).mean() - cell.drop  # noqa: E731
    after_P = moved(brentq(lost, 0, 20)) if cell.drop else before_P
    drawn_NP, correct_NP, wholes = [np.full(cell.n, cell.G)], [rng.binomial(cell.G, before_P)], [False]
    again = False
    for night in range(1, nights + 1):
        whole = not cell.small or night == cell.changed or again
        drawn_P = np.where(np.arange(cell.n) < (cell.n if whole else cell.small), cell.G, 0)
        drawn_NP.append(drawn_P)
        wholes.append(whole)
        correct_NP.append(rng.binomial(drawn_P, after_P if cell.changed and night >= cell.changed else before_P))
        if cell.changed and night < cell.changed:
            continue  # the alarm that is asked for is one after the change
        found = look(
            np.stack(correct_NP), np.stack(drawn_NP), level_of(wholes), seed, max(1, cell.changed) if cell.small else 1
        )
        if found.alarm:
            return night
        again = bool(cell.small) and whole and abs(found.z) >= 2
    return 0


def alarms(cell: Cell, trials: int, nights: int, workers: int) -> np.ndarray:
    with ProcessPoolExecutor(workers) as pool:
        found = pool.map(first_alarm, [cell] * trials, range(trials), [nights] * trials, chunksize=10)
        return np.array(list(found))


def false_alarms(trials: int, workers: int) -> Iterator[str]:
    yield "| design | a false alarm within 90 nights, % | at the first night, % |"
    yield "|---|---|---|"
    whole = [Cell(n, G) for G, n in product((1, 2, 8), (25, 100, 500))]
    for cell in (*whole, Cell(100, 8, small=25), Cell(500, 8, small=25)):
        at = alarms(cell, trials, QUARTER, workers)
        yield f"| {cell.name} | {100 * (at > 0).mean():.1f} | {100 * (at == 1).mean():.1f} |"


def power(trials: int, workers: int) -> Iterator[str]:
    yield "| design | drop | from night | found at once, % | within 3 nights, % |"
    yield "|---|---|---|---|---|"
    for n, G, drop, changed, small in (
        (100, 8, 0.06, 1, 0),
        (100, 8, 0.06, 10, 0),
        (100, 8, 0.06, 30, 0),
        (100, 8, 0.06, 1, 25),
        (100, 8, 0.06, 30, 25),
        (100, 2, 0.06, 30, 0),
        (500, 8, 0.03, 1, 0),
    ):
        cell = Cell(n, G, changed, drop, small)
        at = alarms(cell, trials, changed + 2, workers)
        yield (
            f"| {cell.name} | {100 * drop:.0f} pp | {changed} | {100 * (at == changed).mean():.0f}"
            f" | {100 * (at > 0).mean():.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    for line in chain(power(given.trials, given.workers), [""], false_alarms(given.trials, given.workers)):
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""Coverage in seconds: a reduced version of benchmarks/coverage.py, whose whole table is docs/coverage.md."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.cells import measured, of_tokens
from benchmarks.further_figures import Growth, lengths, looked_at, over_seeds, rescreened
from tests.measures.simulated import EDGES, Cell

TRIALS = 40


@pytest.mark.parametrize(
    "cell",
    [
        Cell("ordinary", 100, 3, 6.0),
        Cell("near 1", 20),
        Cell("near 0", 25, shift=1.0),
        pytest.param(Cell("ordinary", 100), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_what_is_printed_covers(cell: Cell) -> None:
    rows = measured(cell, TRIALS)
    banded = cell.problems == 100 and cell.seeds == 1
    assert len({row["figure"] for row in rows}) == len(rows) == (17 if banded else 13)
    for row in rows:
        assert row["no_width"] == 0, row
        assert row["covers"] is None or row["covers"] >= 0.8, row  # three standard errors under 0.92
        if row["figure"].startswith("called equivalent"):
            assert row["below_05"] <= 0.17, row  # two arms that differ by more than the margin, or hardly known
        if row["figure"] in ("gap at k = 1", "difference of gains") and not cell.shift:
            # identical arms: before, 64 % of p were below .05 in the first cell
            assert row["below_05"] <= 0.17, row
        if cell.population in EDGES:
            assert row["width"] is None or row["width"] > 0, row


@pytest.mark.parametrize(
    "make",
    [
        lambda: rescreened("ordinary", 100, 20),
        lambda: over_seeds(30, 5, 3.0, 20),
        lambda: lengths(20, 1, TRIALS),
        lambda: of_tokens(Cell("ordinary", 100, 3, 3.0, cost=2.7), TRIALS),
    ],
    ids=["rescreened", "over seeds", "lengths", "tokens"],
)
def test_a_second_look_covers(make: Callable[[], list[dict[str, Any]]]) -> None:
    for row in make():
        assert row["no_width"] == 0, row
        assert row["covers"] is None or row["covers"] >= 0.8, row
        if row["figure"].endswith("alike"):
            assert row["below_05"] <= 0.17, row


def test_a_confidence_sequence_holds_at_all_looks_where_the_interval_does_not() -> None:
    sequence, fixed = looked_at(Growth("ordinary", tuple((n, 1) for n in (25, 50, 100, 200))), 100, 0)
    assert sequence["covers"] >= 0.97 and sequence["below_05"] <= 0.03
    assert fixed["covers"] <= 0.92

"""Coverage in seconds: a reduced version of benchmarks/coverage.py, whose whole table is docs/coverage.md."""

from __future__ import annotations

import pytest

from benchmarks.coverage import measured
from benchmarks.simulated import EDGES, Cell

TRIALS = 40


@pytest.mark.parametrize(
    "cell", [Cell("ordinary", 100, 3, 6.0), Cell("near 1", 20), Cell("near 0", 25, shift=1.0)], ids=str
)
def test_what_is_printed_covers(cell: Cell) -> None:
    rows = measured(cell, TRIALS)
    assert len(rows) == 11
    for row in rows:
        assert row["no_width"] == 0, row
        assert row["covers"] is None or row["covers"] >= 0.8, row  # three standard errors under 0.92
        if row["figure"] in ("gap at k = 1", "difference of gains") and not cell.shift:
            # identical arms: before, 64 % of p were below .05 in the first cell
            assert row["below_05"] <= 0.17, row
        if cell.population in EDGES:
            assert row["width"] is None or row["width"] > 0, row

"""Bands and their cross-tab, by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from storage.rules import Band
from tasks.measures.bands import _ratio, bands_of, crosstab_of

Make = Callable[..., pa.Table]


def test_bands_of_four_groups(rollouts: Make) -> None:
    bands = bands_of(rollouts({"a": "wwww", "b": "cwww", "d": "cccc", "e": "c"}))
    assert dict(zip(bands["problem_id"].to_pylist(), bands["band"].to_pylist(), strict=True)) == {
        "a": "all_zero",
        "b": "variance",
        "d": "all_one",
        "e": "all_one",
    }
    assert bands["group_size"].to_pylist() == [4, 4, 4, 1]


def test_crosstab_of_two_arms(rollouts: Make) -> None:
    first = bands_of(rollouts({"a": "ww", "b": "cw", "d": "cc", "e": "cw"}))
    second = bands_of(rollouts({"a": "cw", "b": "cw", "d": "cc", "z": "cw"}, arm="thinking"))
    rows = crosstab_of(pa.concat_tables([first, second]), 16).to_pylist()
    cells = {(r["band"], r["other_band"]): r["count"] for r in rows if r["metric"] == "cell"}
    assert {k: v for k, v in cells.items() if v} == {
        ("all_zero", "variance"): 1,
        ("variance", "variance"): 1,
        ("all_one", "all_one"): 1,
    }
    one = {r["metric"]: r for r in rows}
    assert (one["ratio"]["count"], one["ratio"]["estimate"], one["ratio"]["n"]) == (1, 0.5, 3)  # common problems only
    counts = {(r["arm"], r["band"]): r["count"] for r in rows if r["metric"] == "count" and r["source"] == "all"}
    assert (counts["panel", "variance"], counts["thinking", "variance"], counts["thinking", "all_zero"]) == (2, 3, 0)


def test_the_published_ratio_of_variance_bands_has_an_interval_over_the_same_problems() -> None:
    table = [[232, 137, 108], [30, 72, 280], [0, 0, 18]]
    pairs = [pair for i, row in enumerate(table) for j, n in enumerate(row) for pair in [(i, j)] * n]
    live = list(Band).index(Band.VARIANCE)
    one, other = (np.array([pair[at] == live for pair in pairs]) for at in (0, 1))
    alone = np.arange(len(pairs))
    found = _ratio(one, other, alone)
    assert round(found["estimate"], 2) == 1.83
    assert [round(found[end], 2) for end in ("low", "high")] == [1.58, 2.12]
    # every problem twice, as near-duplicates
    assert _ratio(np.tile(one, 2), np.tile(other, 2), np.tile(alone, 2)) == pytest.approx(found)

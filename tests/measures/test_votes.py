"""maj@k, shortest@k and the shuffled-problem ceiling, by hand; adaptive screening by brute force."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tasks.domain.statistics.difficulty import adaptive_saving, rollouts_until_decided
from tasks.embedding import embedded
from tasks.measures.diversity import ceilings_of
from tasks.measures.votes import votes_of
from tests.measures.conftest import classed_by_letter

Make = Callable[..., pa.Table]


def test_majority_of_three_by_hand(rollouts: Make) -> None:
    # classes 0 0 0 | 1 2 1: the majority of all three is right, and wrong
    rows = votes_of([classed_by_letter(rollouts({"a": "ccc", "b": "www"}))], (1, 3, 4), 0).to_pylist()
    found = {(r["metric"], r["source"], r["k"]): r for r in rows}
    assert found["maj@k", "all", 3]["estimate"] == 0.5
    assert found["shortest@k", "all", 1]["estimate"] == 0.5
    assert (found["maj@k", "all", 4]["estimate"], found["maj@k", "all", 4]["n"]) == (None, 2)
    assert "fewer than k = 4" in found["maj@k", "all", 4]["reason"]


def test_the_likeliest_answer_is_taken(rollouts: Make) -> None:
    table = classed_by_letter(rollouts({"a": "wcw"}))  # lengths 10, 20, 30
    table = table.set_column(table.column_names.index("logprob_sum"), "logprob_sum", pa.array([-10.0, -2.0, -60.0]))
    found = {(r["metric"], r["k"]): r for r in votes_of([table], (1, 2, 3), 0).to_pylist() if r["source"] == "all"}
    assert found["likeliest@k", 1]["estimate"] == pytest.approx(1 / 3)
    assert found["likeliest@k", 2]["estimate"] == pytest.approx(2 / 3)  # of three pairs, the two that hold it
    assert found["likeliest@k", 3]["estimate"] == 1.0
    assert found["shortest@k", 3]["estimate"] == 0.0
    found = {r["metric"]: r for r in votes_of([classed_by_letter(rollouts({"a": "cc"}))], (1,), 0).to_pylist()}
    assert (found["likeliest@k"]["estimate"], found["likeliest@k"]["reason"]) == (
        None,
        "a problem has fewer than k = 1 rollouts, or one without a log-probability",
    )


def test_parts_in_any_order_are_the_whole(rollouts: Make) -> None:
    """Also where subsets are drawn: 12 rollouts have 924 of six."""
    table = classed_by_letter(rollouts({"a": "cwcwwwcwcwwt", "b": "cccccwwwwwww", "d": "wwwwwcwwwwwc"}))
    parts = [table.filter(pc.field("problem_id") == p) for p in ("d", "a", "b")]
    backwards = [part.take(list(range(part.num_rows))[::-1]) for part in parts]
    assert votes_of(parts, (2, 6), 0) == votes_of([table], (2, 6), 0) == votes_of(backwards, (2, 6), 0)


@pytest.mark.parametrize("letters", ["cw", "ccw", "ccww", "cwwww", "www"])
def test_stopping_when_decided_against_all_orders(letters: str) -> None:
    def needed(order: tuple[str, ...]) -> int:
        return next((i for i in range(1, len(order) + 1) if len(set(order[:i])) == 2), len(order))

    expected = np.mean([needed(o) for o in permutations(letters)])
    assert rollouts_until_decided(len(letters), letters.count("c")) == pytest.approx(expected)


def test_dead_problems_save_nothing() -> None:
    assert adaptive_saving([(8, 0), (8, 8)])["estimate"] == 0.0
    measured = adaptive_saving([(8, 0), (2, 1), (5, 4)])  # screened so: 15 of 24
    assert (measured["count"], measured["estimate"]) == (9, 0.375)
    assert adaptive_saving([])["reason"] == "no problem of this source"


def test_ceiling_by_hand(rollouts: Make) -> None:
    # a: two equal vectors; b: two equal ones at right angles to them
    v = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    row = ceilings_of(embedded(rollouts({"a": "cc", "b": "cw"}), v, np.ones(4), "whole")).to_pylist()[0]
    assert (row["within"], row["between"], row["position"], row["problems"]) == (0.0, 1.0, 0.0, 2)
    assert (row["floor"], row["reworded"]) == (None, 0)
    alone = ceilings_of(embedded(rollouts({"a": "cc"}), v[:2], np.ones(2), "whole")).to_pylist()[0]
    assert (alone["between"], alone["reason"]) == (None, "one problem only")


def test_floor_by_hand(rollouts: Make) -> None:
    # a's first trace lies at 60 degrees from itself in other words; distance 1/2, as far as its second trace
    table, half = rollouts({"a": "cc", "b": "cw"}), np.array([[0.5, 3**0.5 / 2]], np.float32)
    v = np.array([[1, 0], half[0], [0, -1], [0, -1]], np.float32)
    said = embedded(table.slice(0, 1), half, np.ones(1), "reworded")
    rows = ceilings_of(pa.concat_tables([embedded(table, v, np.ones(4), "whole"), said])).to_pylist()
    assert [(r["window"], r["n"], r["reworded"]) for r in rows] == [("whole", 4, 1)]
    assert rows[0]["floor"] == pytest.approx(0.5)
    # within: (1/2 + 0)/2; between: 1, 1, 1 + √3/2 twice; position: (1/4 − 1/2)/(1 + √3/4 − 1/2)
    assert rows[0]["between"] == pytest.approx(1 + 3**0.5 / 4)
    assert rows[0]["position"] == pytest.approx(-0.25 / (0.5 + 3**0.5 / 4))

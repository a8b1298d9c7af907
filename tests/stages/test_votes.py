"""maj@k, shortest@k and the shuffled-problem ceiling, by hand; adaptive screening by brute force."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from tasks.analysis.ceilings import ceilings_of
from tasks.domain.betabinomial import adaptive_saving, rollouts_until_decided
from tasks.embedding import embedded
from tasks.votes import votes_of

Make = Callable[..., pa.Table]


def test_majority_of_three_by_hand(rollouts: Make) -> None:
    # canonical answers c0 c1 c0 | w0 w1 w0: the majority of all three is c0, right, and w0, wrong
    rows = votes_of(rollouts({"a": "ccc", "b": "www"}), (1, 3, 4), 100, 0).to_pylist()
    found = {(r["metric"], r["source"], r["k"]): r for r in rows}
    assert found["maj@k", "all", 3]["estimate"] == 0.5
    assert found["shortest@k", "all", 1]["estimate"] == 0.5
    assert (found["maj@k", "all", 4]["estimate"], found["maj@k", "all", 4]["n"]) == (None, 2)
    assert "fewer than k = 4" in found["maj@k", "all", 4]["reason"]


def test_no_answer_at_all_is_wrong(rollouts: Make) -> None:
    rows = votes_of(rollouts({"a": "tt"}), (2,), 10, 0).to_pylist()
    assert {r["estimate"] for r in rows} == {0.0}


@pytest.mark.parametrize("letters", ["cw", "ccw", "ccww", "cwwww", "www"])
def test_stopping_when_decided_against_all_orders(letters: str) -> None:
    def needed(order: tuple[str, ...]) -> int:
        return next((i for i in range(1, len(order) + 1) if len(set(order[:i])) == 2), len(order))

    expected = np.mean([needed(o) for o in permutations(letters)])
    assert rollouts_until_decided(len(letters), letters.count("c")) == pytest.approx(expected)


def test_dead_problems_save_nothing() -> None:
    assert adaptive_saving([(8, 0), (8, 8)])["estimate"] == 0.0
    assert adaptive_saving([])["reason"] == "no problem of this source"


def test_ceiling_by_hand(rollouts: Make) -> None:
    # a: two equal vectors; b: two equal ones at right angles to them
    v = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    row = ceilings_of(embedded(rollouts({"a": "cc", "b": "cw"}), v, np.ones(4), "whole")).to_pylist()[0]
    assert (row["within"], row["between"], row["relative"], row["problems"]) == (0.0, 1.0, 0.0, 2)
    alone = ceilings_of(embedded(rollouts({"a": "cc"}), v[:2], np.ones(2), "whole")).to_pylist()[0]
    assert (alone["between"], alone["reason"]) == (None, "one problem only")

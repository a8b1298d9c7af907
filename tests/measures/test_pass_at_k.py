"""pass@k tables: worked values, nulls where undefined, contrasts on common problems."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tasks.domain.statistics.means import ONE_PROBLEM
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import asymptotes_of, contrasts_of, passk_of, solved_by_of

Make = Callable[..., pa.Table]


def table(groups: pa.Table, ks: tuple[int, ...] = (1, 2, 4)) -> dict[tuple[str, str, int], dict]:
    rows = passk_of(groups, ks, 500, 0).to_pylist()
    return {(r["metric"], r["source"], r["k"]): r for r in rows}


def test_two_problems_by_hand(rollouts: Make) -> None:
    found = table(count_groups(rollouts({"a": "cwww", "b": "ccww"})))
    # k = 1: (1/4 + 2/4)/2; k = 2: a misses 3 of 6 pairs, b misses 1 of 6; k = 4: certain
    assert [found["pass@k", "all", k]["estimate"] for k in (1, 2, 4)] == pytest.approx(
        [0.375, (1 / 2 + 5 / 6) / 2, 1.0]
    )
    assert found["pass^k", "all", 2]["estimate"] == pytest.approx((0 + 1 / 6) / 2)
    row = found["pass@k", "all", 1]
    assert row["low"] <= row["estimate"] <= row["high"]
    assert (row["n"], row["rollouts"], row["tokens"]) == (2, 4, 25.0)


def test_seeds_are_averaged_by_problem(rollouts: Make) -> None:
    two = [rollouts({"a": g}, step=5, adapter=name) for g, name in (("cccc", "one"), ("wwww", "two"))]
    row = table(count_groups(pa.concat_tables(two)))["pass@k", "all", 1]
    assert (row["estimate"], row["policies"], row["n"]) == (0.5, 2, 1)


def test_gap_and_closure_by_hand(rollouts: Make) -> None:
    both = [rollouts({"a": "cwww", "b": "cwww", "x": "cccc"}), rollouts({"a": "cccc", "b": "ccww"}, arm="thinking")]
    rows = {
        (r["metric"], r["k"]): r
        for r in contrasts_of(count_groups(pa.concat_tables(both)), (1, 4), 500, 0).to_pylist()
        if r["source"] == "all"
    }
    assert rows["gap", 1]["estimate"] == pytest.approx(0.25 - 0.75)
    assert (rows["gap", 4]["estimate"], rows["gap", 1]["n"]) == (0.0, 2)
    assert rows["closure", 4]["estimate"] == pytest.approx(0.5)
    assert rows["monotone", 4]["reason"] == "narrows at every k"


def test_gap_at_equal_tokens_by_hand(rollouts: Make) -> None:
    # a rollout of thinking costs two of panel: its k = 1 is held against panel's 2, its 2 against 4, its 4 against none
    both = [rollouts({"a": "cwww"}), rollouts({"a": "cwww"}, arm="thinking", tokens=20)]
    rows = contrasts_of(count_groups(pa.concat_tables(both)), (1, 2, 4), 100, 0).to_pylist()
    found = [
        (r["k"], r["estimate"], r["reason"]) for r in rows if r["metric"] == "equal_tokens" and r["source"] == "all"
    ]
    assert found == [
        (2, pytest.approx(0.5 - 0.25), f"50 tokens; other at k = 1; {ONE_PROBLEM}"),
        (4, pytest.approx(1.0 - 0.5), f"100 tokens; other at k = 2; {ONE_PROBLEM}"),
        (4, None, "4 of the dearer cost more than all 4 of the other on 1 of 1 problems"),
    ]


def test_the_last_doubling_and_what_is_left_unsolved(rollouts: Make) -> None:
    groups = count_groups(rollouts({"a": "cwwwww", "b": "wwwwww"}))
    rows = {r["k"]: r for r in asymptotes_of(groups).to_pylist() if r["source"] == "all"}
    assert [rows[k]["estimate"] for k in (1, 2, 4, 6)] == pytest.approx([1 / 12, 1 / 6, 1 / 3, 1 / 2])
    assert [rows[k]["doubling"] for k in (1, 2, 4, 6)] == [None, *(pytest.approx(v) for v in (1 / 12, 1 / 6, 1 / 6))]
    assert (rows[6]["unsolved"], rows[4]["unsolved"]) == (1, None)
    assert (1 - rows[6]["unsolved_below"]) ** 6 == pytest.approx(0.05)


def test_who_solved_what(rollouts: Make) -> None:
    both = [
        rollouts({"a": "cw", "b": "ww", "d": "cc", "e": "ww"}),
        rollouts({"a": "cc", "b": "cw", "d": "ww", "e": "ww"}, arm="thinking"),
    ]
    rows = solved_by_of(count_groups(pa.concat_tables(both))).to_pylist()
    assert {r["problem_id"]: r["solved_by"] for r in rows} == {
        "a": "both",
        "b": "other_only",
        "d": "arm_only",
        "e": "neither",
    }
    assert all(r["equal_n"] for r in rows)


def test_unequal_groups_are_judged_at_the_smaller_size_too(rollouts: Make) -> None:
    both = [rollouts({"a": "cwww"}), rollouts({"a": "ww"}, arm="thinking")]
    row = solved_by_of(count_groups(pa.concat_tables(both))).to_pylist()[0]
    assert (row["solved_by"], row["equal_n"]) == ("arm_only", False)
    assert row["chance_of_arm"] == pytest.approx(0.5)  # two of the four rollouts: 3 of 6 pairs hold the correct one
    assert row["chance_of_other"] == 0.0

"""Who solved what, and whether the count was fair."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from storage.sql import named, query
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import solved_by_of

Make = Callable[..., pa.Table]


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


def test_two_policies_without_a_common_problem_are_a_row_of_nulls(rollouts: Make) -> None:
    three = [rollouts({"a": "cw"}), rollouts({"a": "cw"}, step=4), rollouts({"b": "cw"}, arm="thinking")]
    table = solved_by_of(count_groups(pa.concat_tables(three)))
    rows = {(r["arm"], r["step"], r["other"], r["other_step"]): r for r in table.to_pylist()}
    assert len(rows) == table.num_rows == 3
    assert (rows["panel", 0, "panel", 4]["solved_by"], rows["panel", 0, "panel", 4]["reason"]) == ("both", None)
    for step in (0, 4):
        row = rows["panel", step, "thinking", 0]
        assert {name for name, value in row.items() if value is not None} == {
            "arm",
            "step",
            "other",
            "other_step",
            "reason",
        }
        assert row["reason"] == "no problem in common"
    shown = query(named("report_solved_by"), solved_by=table).to_pylist()
    assert [(r["problems"], r["both"], r["neither"], r["sets"], r["reason"]) for r in shown] == [
        (1, 1, 0, "the same problems", None),
        *[(0, None, None, None, "no problem in common")] * 2,
    ]
    assert query(named("report_solved_by_one"), solved_by=table).num_rows == 0

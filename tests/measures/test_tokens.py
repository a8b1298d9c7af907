"""Token costs and paired lengths, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tasks.measures.tokens import tokens_of

Make = Callable[..., pa.Table]


def rows(table: pa.Table) -> list[dict]:
    return tokens_of(table).to_pylist()


def test_tokens_per_correct_by_hand(rollouts: Make) -> None:
    # tokens are 10, 20, … along a group: a has 30 for 1 correct, b has 30 for 2
    row = next(r for r in rows(rollouts({"a": "cw", "b": "cc"})) if r["source"] == "all")
    assert (row["num_tokens"], row["num_correct"], row["estimate"], row["mean"]) == (60, 3, 20.0, 15.0)
    assert row["low"] <= 20.0 <= row["high"]


def test_a_cost_is_of_the_problems_that_its_interval_is_of(rollouts: Make) -> None:
    """A problem that one seed was not asked: before, it was in the estimate and not in the interval, which then could
    lie beside it."""
    groups = {"a": "cw", "b": "cc", "d": "wc", "e": "cc"}
    seeds = [groups | {"dear": "c" * 30}, groups, groups]
    table = pa.concat_tables([rollouts(g, step=9, adapter=f"a{i}") for i, g in enumerate(seeds)])
    row = next(r for r in rows(table) if r["source"] == "all")
    assert (row["n"], row["num_correct"], row["num_tokens"], row["estimate"]) == (4, 18, 360, 20.0)
    assert row["low"] < 20.0 < row["high"]


def test_the_cost_of_one_arm_over_another_by_hand(rollouts: Make) -> None:
    """Six problems of 30 tokens, of 9 correct answers in all, against six of 45, of 7."""
    first, second = {"a": "cw", "b": "cc", "d": "cw", "e": "cc", "f": "cw", "g": "cc"}, {"a": "cc"}
    both = [rollouts(first), rollouts(dict.fromkeys("abdefg", "cw") | second, arm="z", tokens=15)]
    (row,) = [
        r for r in rows(pa.concat_tables(both)) if r["metric"] == "tokens_per_correct_ratio" and r["source"] == "all"
    ]
    assert (row["arm"], row["other"], row["n"]) == ("panel", "z", 6)
    assert row["estimate"] == pytest.approx((180 / 9) / (270 / 7))
    assert row["low"] < row["estimate"] < row["high"]
    few = [rollouts({"a": "cw", "b": "cc"}), rollouts({"a": "cw", "b": "cw"}, arm="z", tokens=15)]
    (row,) = [
        r for r in rows(pa.concat_tables(few)) if r["metric"] == "tokens_per_correct_ratio" and r["source"] == "all"
    ]
    assert (row["low"], row["reason"]) == (None, "fewer than 3 problems' worth of correct answers")


def test_accuracy_of_answers_leaves_out_what_gave_none(rollouts: Make) -> None:
    (row,) = [
        r
        for r in rows(rollouts({"a": "cwtt", "b": "cccc", "d": "tttt"}))
        if r["metric"] == "accuracy_answered" and r["source"] == "all"
    ]
    assert row["estimate"] == pytest.approx(5 / 6)
    assert 0 < row["low"] < 5 / 6 < row["high"] <= 1
    none = rows(rollouts({"a": "tt"}))[1]
    assert (none["metric"], none["estimate"], none["reason"]) == (
        "accuracy_answered",
        None,
        "no rollout gave an answer",
    )


def test_lengths_by_who_is_correct(rollouts: Make) -> None:
    both = pa.concat_tables(
        [rollouts({"a": "cc", "b": "cw"}), rollouts({"a": "cc", "b": "wc"}, arm="thinking", tokens=30)]
    )
    found = {r["bucket"]: r for r in rows(both) if r["metric"] == "bucket" and r["source"] == "all"}
    assert {bucket: r["n"] for bucket, r in found.items()} == {
        "all_paired": 2,
        "arm_only": 1,
        "both_correct": 1,
        "other_only": 1,
    }
    correct = found["both_correct"]
    assert (correct["mean"], correct["other_mean"], correct["longer_in"]) == (15.0, 45.0, 1)
    assert correct["ratio_geomean"] == pytest.approx(3)

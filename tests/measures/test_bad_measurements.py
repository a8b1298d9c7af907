"""What measurement may meet: too few rollouts, a source that one arm lacks, no trace, no number, no common problem.
Every table of the analysis says null with a reason; none holds a number that is none, and none fails half way."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.embedding import embedded
from tasks.measures.bands import bands_of, crosstab_of
from tasks.measures.curves import curves_of
from tasks.measures.diversity import answers_of, ceilings_of, compare_columns, diversity_of
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import asymptotes_of, contrasts_of, passk_of, solved_by_of
from tasks.measures.tokens import tokens_of
from tasks.measures.votes import votes_of
from tests.measures.conftest import classed_by_letter, rows_of

KS = (1, 2, 4)
BAD: dict[str, list[pa.Table]] = {
    "n smaller than k": [rows_of({"a": "cw", "b": "cwww"}), rows_of({"a": "cw", "b": "cccc"}, arm="thinking")],
    "groups of one rollout": [rows_of({"a": "c", "b": "w"}), rows_of({"a": "w", "b": "w"}, arm="thinking")],
    "a source that the second lacks": [
        rows_of({"a": "cw"}),
        rows_of({"b": "cw"}, source="aime"),
        rows_of({"a": "cw"}, arm="thinking"),
    ],
    "a source that the first lacks": [
        rows_of({"a": "cw"}),
        rows_of({"a": "cw"}, arm="thinking"),
        rows_of({"b": "cw"}, source="aime", arm="thinking"),
    ],
    "every trace malformed": [rows_of({"a": "tt", "b": "tt"}), rows_of({"a": "tt", "b": "tt"}, arm="thinking")],
    "nothing correct": [rows_of({"a": "ww", "b": "ww"}), rows_of({"a": "ww", "b": "ww"}, arm="thinking")],
    "no problem in common": [rows_of({"a": "cw"}), rows_of({"b": "cw"}, arm="thinking")],
}


def one_arm(parts: list[pa.Table], arm: str) -> pa.Table:
    return pa.concat_tables([part for part in parts if part["arm"][0].as_py() == arm])


def vectors(rollouts: pa.Table) -> pa.Table:
    n = sum(trace is not None for trace in rollouts["trace"].to_pylist())
    drawn = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return embedded(rollouts, drawn if n else np.zeros((0, 1), np.float32), np.ones(n), "whole")


def crosstab(parts: list[pa.Table]) -> pa.Table:
    return crosstab_of(pa.concat_tables([bands_of(one_arm(parts, arm)) for arm in ("panel", "thinking")]), 16)


def groups(parts: list[pa.Table]) -> pa.Table:
    return count_groups(pa.concat_tables(parts))


#: Table → how it is made, and the columns of which one is a row's figure.
TABLES: dict[str, tuple[Callable[[list[pa.Table]], pa.Table], str]] = {
    "crosstab": (crosstab, "estimate p_value"),
    "passk": (lambda parts: passk_of(groups(parts), KS, 50, 0), "estimate"),
    "contrasts": (lambda parts: contrasts_of(groups(parts), KS, 50, 0), "estimate"),
    "asymptotes": (lambda parts: asymptotes_of(groups(parts)), "estimate"),
    "curves": (lambda parts: curves_of(groups(parts), None, {}, {}), "estimate"),
    "solved_by": (lambda parts: solved_by_of(groups(parts)), "solved_by"),
    "tokens": (lambda parts: tokens_of(pa.concat_tables(parts)), "estimate mean"),
    "votes": (lambda parts: votes_of([classed_by_letter(pa.concat_tables(parts))], KS, 0), "estimate"),
    "answers": (lambda parts: answers_of(classed_by_letter(pa.concat_tables(parts))), "entropy"),
    "diversity": (lambda parts: diversity_of(vectors(pa.concat_tables(parts))), "diversity"),
    "ceilings": (lambda parts: ceilings_of(vectors(one_arm(parts, "panel"))), "within"),
    "comparison": (
        lambda parts: compare_columns(
            [diversity_of(vectors(one_arm(parts, arm))) for arm in ("panel", "thinking")], ("diversity",)
        ),
        "difference",
    ),
}


#: No trace, no vector: the report says so of each policy (below).
NO_ROW = [("every trace malformed", table) for table in ("diversity", "ceilings", "comparison")]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("what", BAD)
def test_null_has_a_reason_and_numbers_are_numbers(what: str, table: str) -> None:
    make, figures = TABLES[table]
    rows = make(BAD[what]).to_pylist()
    assert (rows == []) == ((what, table) in NO_ROW)
    for row in rows:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), row
        counted = row.get("metric") == "only"  # its figure is a count
        told = [row[name] for name in figures.split() if row[name] is not None]
        assert told or counted or row["reason"], row


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_arm_that_lacks_a_source_is_named(which: str) -> None:
    parts = BAD[f"a source that the {which} lacks"]
    lacking = {"first": "panel", "second": "thinking"}[which]
    said = f"{lacking} has no problem of aime"
    gaps = [r for r in contrasts_of(groups(parts), KS, 50, 0).to_pylist() if r["source"] == "aime"]
    assert [(r["metric"], r["estimate"], r["n"], r["reason"]) for r in gaps] == [("gap", None, 0, said)]
    counts = [
        r for r in crosstab(parts).to_pylist() if (r["metric"], r["arm"], r["source"]) == ("count", lacking, "aime")
    ]
    assert {(r["count"], r["estimate"], r["n"], r["reason"]) for r in counts} == {(0, None, 0, said)}

"""Answer classes are the grader's, not those of spelling; votes, entropy and distinct answers count them."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from storage.artifacts.schemas import Calibrations, Embeddings, Rollouts
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.engines.grading.graders import Graders
from tasks.grading import by_grader
from tasks.measures.bands import bands_of, crosstab_of
from tasks.measures.diversity import measure_answers
from tasks.measures.pass_at_k import measure_votes
from tasks.partitions import partition_rollouts, partitions_of
from tests.dashboards.made_up_rows import calibration_rows, embedded
from tests.dashboards.synthetic import put
from tests.measures.conftest import rows_of

RIGHT = ("3/4", r"\frac34", "0.75", r"\frac{3}{4}", "3/4")


def answering(right: Sequence[str], wrong: Sequence[str | None], problem: str = "a", **policy: str) -> pa.Table:
    """Rollouts of one problem that gave these answers."""
    rows = rows_of({problem: "c" * len(right) + "w" * len(wrong)}, **policy)  # type: ignore[arg-type]
    at = rows.schema.get_field_index("canonical")
    return rows.set_column(at, rows.schema.field(at), pa.array([*right, *wrong], pa.string()))


def classes_of(rows: pa.Table, equal: object) -> list[int | None]:
    return partitions_of(rows, equal)["answer_class"].to_pylist()  # type: ignore[arg-type]


def test_wrong_answers_share_a_class_if_the_grader_says_so(graders: Graders) -> None:
    wrong = (r"2\sqrt{2}", r"\sqrt{8}", "0.5", "1/2", "1,2", "2,1", "even", None, "x+1", "x+2")
    found = dict(zip(wrong, classes_of(answering((), wrong), by_grader(graders)), strict=True))
    assert found[r"2\sqrt{2}"] == found[r"\sqrt{8}"]
    assert found["0.5"] == found["1/2"]
    assert found["1,2"] == found["2,1"]
    assert found["x+1"] != found["x+2"]
    assert found[None] is None
    assert set(found.values()) - {None} == {1, 2, 3, 4, 5, 6}
    first, second = classes_of(answering((), ("(1,2)", "(2,1)")), by_grader(graders))
    assert first != second


def test_stages_hand_the_classes_on(in_store: Store) -> None:
    rows = answering(RIGHT, ("7", "7", "7.0"))
    ref, vectors = put(in_store, Rollouts, rows), put(in_store, Embeddings, embedded(rows))
    known = put(in_store, Calibrations, calibration_rows())
    parts = partition_rollouts(rollouts=ref, embeddings=vectors, calibration=known, grader_version=GRADER_VERSION)
    assert in_store.manifest(parts).provenance.notes["trace_precision"] == "0.7083"
    votes = in_store.read(measure_votes(rollouts=(ref,), partitions=(parts,), ks=(8,))).to_pylist()
    assert [r["estimate"] for r in votes if r["metric"] == "maj@k" and r["source"] == "all"] == [1.0]
    answers = in_store.read(measure_answers(rollouts=ref, partitions=parts)).to_pylist()
    assert [(r["distinct"], r["distinct_wrong"]) for r in answers] == [(2, 1)]
    with pytest.raises(UserError, match="not the installed grader"):
        partition_rollouts(rollouts=ref, embeddings=vectors, calibration=known, grader_version="2-old")


# Bands and their cross-tab, by hand.


def test_bands_of_four_groups() -> None:
    bands = bands_of(rows_of({"a": "wwww", "b": "cwww", "d": "cccc", "e": "c"}))
    assert dict(zip(bands["problem_id"].to_pylist(), bands["band"].to_pylist(), strict=True)) == {
        "a": "all_zero",
        "b": "variance",
        "d": "all_one",
        "e": "all_one",
    }
    assert bands["group_size"].to_pylist() == [4, 4, 4, 1]


def test_crosstab_of_two_arms() -> None:
    first = bands_of(rows_of({"a": "ww", "b": "cw", "d": "cc", "e": "cw"}))
    second = bands_of(rows_of({"a": "cw", "b": "cw", "d": "cc", "z": "cw"}, arm="thinking"))
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

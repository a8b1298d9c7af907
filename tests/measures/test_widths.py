"""The table of widths: rows of one shape, intervals that never have no width, and a reason wherever one is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.store import Store
from storage.sql import query
from tasks.domain.statistics.regression import Correlation, rank_correlations
from tasks.evidence import VECTORS
from tasks.measures.widths import MEASURES, vocabulary_of, widths_of
from tests.measures.conftest import rows_of

Row = dict[str, Any]


def classed_rows(groups: dict[str, str], classes: dict[str, list[int | None]] | None = None, **policy: Any) -> pa.Table:
    """Every partition has these classes; c(orrect) is 0 and w(rong) 1 and 2 in turn where none are given."""
    rows = rows_of(groups, **policy)
    table = rows.to_pydict()
    told = [{"c": 0, "w": 1 + i % 2}.get(a) for a, i in zip(table["answer"], table["rollout"], strict=True)]
    if classes:
        told = [classes[p][i] for p, i in zip(table["problem_id"], table["rollout"], strict=True)]
    for name in ("answer", "trace", "strategy"):
        rows = rows.append_column(f"{name}_class", pa.array(told, pa.int32()))
    return rows.append_column("cluster", rows["problem_id"])


def vectors_for(rows: pa.Table, seed: int = 0) -> pa.Table:
    """One of five orthogonal directions a rollout; none without a trace."""
    kept = query("select problem_id, arm, step, seed, rollout from t where trace is not null", t=rows)
    chosen = np.eye(5, dtype=np.float32)[np.random.default_rng(seed).integers(0, 5, kept.num_rows)]
    return kept.append_column("embedding", pa.array(chosen.tolist(), pa.list_(pa.float32()))).select(VECTORS)


def measured(rows: pa.Table, ks: tuple[int, ...] = (1, 2, 4)) -> list[Row]:
    vocabulary = vocabulary_of(rows["trace"].to_pylist())
    return widths_of([(rows, vectors_for(rows))], vocabulary, ks).to_pylist()


def one(rows: list[Row], metric: str, **what: Any) -> Row:
    (found,) = [
        r for r in rows if r["metric"] == metric and r["other"] is None and all(r[k] == v for k, v in what.items())
    ]
    return found


def test_rarefied_distinct_answers_by_hand() -> None:
    rows = measured(classed_rows({"a": "cccc", "b": "ccww", "d": "wwww"}))
    row = one(rows, "distinct_k", partition="answer", basis="all", k=2)
    # 1 | pairs 6: one of one class (cc), five of two | pairs 6: two of one class
    assert row["estimate"] == pytest.approx((1 + 11 / 6 + (2 * 1 + 4 * 2) / 6) / 3)
    assert row["low"] < row["estimate"] < row["high"]
    assert (row["n"], row["clusters"], row["seeds"], row["holds_for"]) == (3, 3, None, None)
    correct = one(rows, "distinct_k", partition="answer", basis="correct", k=2)
    assert (correct["estimate"], correct["n"]) == (1.0, 2)
    assert correct["low"] < 1.0 < correct["high"]


def test_every_row_has_an_interval_or_a_reason() -> None:
    rows = measured(classed_rows(dict.fromkeys("abdefg", "ccwt") | {"h": "tttt", "i": "wwww"}), (1, 2, 4, 8))
    assert {r["metric"] for r in rows if r["other"] is None} == {m.name for m in MEASURES}
    for row in rows:
        told = row["low"] is not None and row["low"] < row["high"] and row["low"] <= row["estimate"] <= row["high"]
        assert told or row["reason"], row
    assert one(rows, "distinct_k", partition="answer", basis="all", k=8)["reason"].startswith("no problem has 8")
    unlikely = one(rows, "semantic_entropy_likelihood", partition="answer", basis="all", k=2)
    assert unlikely["reason"] == "no problem has 2 rollouts with a class and a log-probability"


def test_correlations_with_length_and_accuracy_are_there() -> None:
    rng = np.random.default_rng(0)
    groups = {
        f"p{i:02d}": "".join(rng.permutation(list("c" * c + "w" * (8 - c)))) for i, c in enumerate([*range(9)] * 4)
    }
    rows = measured(classed_rows(groups), (1, 2, 4, 8))
    told = {(r["metric"], r["partition"]): r for r in rows if r["other"] == "accuracy"}
    only_one_answer_earns = told["utility_k", "answer"]
    assert only_one_answer_earns["estimate"] == pytest.approx(1.0)
    assert only_one_answer_earns["reason"].startswith("both order the problems the same way")
    assert -1 < told["vendi", None]["low"] < told["vendi", None]["high"] < 1
    assert {r["k"] for r in rows if r["other"]} == {4}
    assert ("length", None) in told


def rank_correlation(x_P: np.ndarray, y_P: np.ndarray, cluster_P: np.ndarray) -> Correlation:
    return rank_correlations([x_P, y_P], [(0, 1)], cluster_P)[0]


def test_rank_correlation_by_hand_and_where_it_has_none() -> None:
    x = np.array([1.0, 2, 3, 4, 5, 6])
    found = rank_correlation(x, np.array([2.0, 1, 3, 4, 6, 5]), x)
    assert found.estimate == pytest.approx(1 - 6 * 4 / (6 * 35))
    assert found.low < found.estimate < found.high  # type: ignore[operator]
    assert rank_correlation(x, x**3, x).reason == "both order the problems the same way, or the reverse: no interval"
    assert rank_correlation(x, np.ones(6), x).reason == "every problem is alike in one of the two"
    assert rank_correlation(x[:3], x[:3], x[:3]).reason == "fewer than 5 problems"
    rng, half = np.random.default_rng(2), np.minimum(np.arange(100), 50)
    assert rank_correlation(rng.normal(size=100), rng.normal(size=100), half).reason.startswith("a few large clusters")  # type: ignore[union-attr]


def test_a_study_has_them(in_store: Store) -> None:
    from storage.reading.query_cache import ask
    from tests.dashboards.synthetic import made_up_study

    report = made_up_study(in_store.root, problems=24, steps=4, benchmarks=False)
    shown = ask(in_store.root, str(report), "report_widths").to_pylist()
    assert {r["metric"] for r in shown} == {m.name for m in MEASURES}
    for name in ("width_and_length", "width_correlations", "distinct_answers", "calibration"):
        assert ask(in_store.root, str(report), f"report_{name}").num_rows
    page = (in_store.files(report) / "report.md").read_text()
    assert "Width by every measure" in page and "Width beside length and accuracy" in page

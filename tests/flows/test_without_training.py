"""A study without training: every arm is screened and measured, and its report says nothing about a training."""

from __future__ import annotations

import re
from typing import Any

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.query_cache import ask
from tests import mini

pytestmark = pytest.mark.slow

Row = dict[str, Any]
NONE = ("--seeds", "")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Row]:
    root = tmp_path_factory.mktemp("untrained") / "store"
    return Store(root), mini.finish(root, *NONE)


def test_every_arm_is_measured_and_nothing_is_trained(run: tuple[Store, Row]) -> None:
    store, result = run
    assert store.refs("training") == []
    assert result["made"] == result["stages"] == len(store.refs())
    inputs = store.manifest(Ref.parse(result["report"])).recipe.inputs
    assert not inputs.get("trainings") and not inputs.get("evaluations")
    assert len(inputs["final"]) == len(inputs["screenings"]) == 2
    summary = ask(store.root, result["report"], "report_summary").to_pylist()
    assert [(row["arm"], row["seed"], row["heldout_after"], row["gain"]) for row in summary] == [
        ("panel", None, None, None),
        ("thinking", None, None, None),
    ]
    assert all(0 < row["heldout_before"] < 1 and row["variance"] for row in summary)


def test_the_report_claims_nothing_about_a_training(run: tuple[Store, Row]) -> None:
    store, result = run
    page = (store.files(Ref.parse(result["report"])) / "report.md").read_text()
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    titles = [section.partition("\n")[0] for section in sections[1:]]
    assert {"The answer", "Bands", "Diversity", "pass@k", "Audit"} <= set(titles) and "Training" not in titles
    answer = next(section for section in sections if section.startswith("The answer"))
    assert "Nothing was trained in this run." in answer and "training" not in answer
    purposes = {row["purpose"] for row in ask(store.root, result["report"], "report_spending").to_pylist()}
    assert purposes == {"screening", "measurement"}

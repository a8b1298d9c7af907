"""A whole study whose arms stand on different models: one starts from an adapter made elsewhere, one is a ceiling with
an adapter that no training of the study could go on with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.query_cache import ask
from tests import mini
from tests.made_elsewhere import adapter, another_model

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Row, list[str]]:
    folder = tmp_path_factory.mktemp("bases")
    another_model(folder / "other")
    adapter(folder / "fits", rank=16)
    adapter(folder / "wide", rank=32, targets=("q_proj", "v_proj"))
    settings = (
        "arms.panel.adapter=./fits",
        "arms.thinking.model=./other",
        "arms.think_tags.trained_as=none",
        "arms.think_tags.adapter=./wide",
    )
    words = ["--arms", "panel,thinking,think_tags", *(word for one in settings for word in ("--set", one))]
    return Store(folder / "store"), mini.finish(folder / "store", *words), words


def test_each_arm_is_sampled_from_what_it_stands_on(run: tuple[Store, Row, list[str]]) -> None:
    store, _, _ = run
    told = [about for _, about in Ledger(store.root).accounts()]
    stood = {about["arm"]: {one["model"] for one in told if one["arm"] == about["arm"]} for about in told}
    assert stood == {"panel": {"demo"}, "thinking": {"other"}, "think_tags": {"demo"}}
    imported = {str(r) for r in store.refs("training") if store.manifest(r).recipe.stage == "import_adapter"}
    assert len(imported) == 2
    assert {one["adapter"] in imported for one in told if one["arm"] == "think_tags"} == {True}
    assert {one["adapter"] for one in told if one["arm"] == "thinking"} - imported >= {None}


def test_the_ceiling_is_measured_and_not_trained(run: tuple[Store, Row, list[str]]) -> None:
    store, result, _ = run
    trainings = store.manifest(Ref.parse(result["report"])).recipe.inputs["trainings"]
    assert len(trainings) == 2
    summary = {row["arm"]: row for row in ask(store.root, result["report"], "report_summary").to_pylist()}
    assert summary["think_tags"]["heldout_before"] is not None and summary["think_tags"]["problems"]
    assert summary["think_tags"]["gain"] is None and summary["panel"]["gain"] is not None


def test_report_and_audit_say_that_bases_differ(run: tuple[Store, Row, list[str]]) -> None:
    store, result, _ = run
    page = (store.files(Ref.parse(result["report"])) / "report.md").read_text()
    assert "panel on demo with fits, thinking on other, think\\_tags on demo with wide" in page
    assert "Arms stand on different base models: what they differ by is not of their scaffolds alone." in page
    found = ask(store.root, result["report"], "report_audit").to_pylist()
    said = {row["fact"].partition(" (heldout")[0] for row in found if row["code"] == "different_models"}
    assert {re.sub(r" \([0-9a-f]{12}\)", "", one) for one in said} == {
        "panel runs on demo and thinking on other",
        "think_tags runs on demo and thinking on other",
    }
    elsewhere = [row["fact"] for row in found if row["code"] == "adapter_made_elsewhere"]
    assert sorted(elsewhere) == [
        "panel starts from fits, which was trained elsewhere",
        "think_tags starts from wide, which was trained elsewhere",
    ]

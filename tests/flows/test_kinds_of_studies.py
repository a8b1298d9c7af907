"""Whole small studies that differ in shape: trained jointly, not at all, on several bases, or in two places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flows.study.models import SHIPPED
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.reading.query_cache import ask
from tasks.engines.model_files import model_digest
from tests import mini, warm
from tests.made_elsewhere import adapter, another_model

pytestmark = pytest.mark.slow


def summary(store: Store, result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in ask(store.root, result["report"], "report_summary").to_pylist()}


def test_a_joint_study_trains_both_arms_on_what_both_have_in_their_band(tmp_path: Path) -> None:
    mini.finish(tmp_path / "store", "--set", "train_on=joint")
    store = Store(tmp_path / "store")
    held = {r["problem_id"] for r in store.read(store.refs("splits")[0]).to_pylist() if r["split"] == "heldout"}

    def live(ref: Ref) -> set[str]:
        return {r["problem_id"] for r in store.read(ref).to_pylist() if r["band"] == "variance"}

    one, other = map(live, store.refs("bands"))
    assert one != other
    for training in store.refs("training"):
        (bands,) = store.manifest(training).recipe.inputs["bands"]
        trained = pq.read_table(store.files(training) / "exposure.parquet")["problem_id"].to_pylist()
        assert live(Ref.parse(bands)) == one & other and trained and set(trained) <= (one & other) - held


def test_without_training_every_arm_is_measured_and_nothing_is_trained(tmp_path: Path) -> None:
    store, result = Store(tmp_path / "store"), mini.finish(tmp_path / "store", "--seeds", "")
    assert store.refs("training") == [] and result["made"] == result["stages"] == len(store.refs())
    inputs = store.manifest(Ref.parse(result["report"])).recipe.inputs
    assert not inputs.get("trainings") and len(inputs["final"]) == len(inputs["screenings"]) == 2
    for row in summary(store, result).values():
        assert 0 < row["heldout_before"] < 1 and row["variance"] and row["heldout_after"] is row["gain"] is None
    page = (store.files(Ref.parse(result["report"])) / "report.md").read_text()
    assert "Nothing was trained in this run." in page and "## Training" not in page


def test_arms_on_different_models(tmp_path: Path) -> None:
    """One starts from an adapter made elsewhere; one is a ceiling, with an adapter that no training could resume."""
    another_model(tmp_path / "other")
    adapter(tmp_path / "fits", rank=16)
    adapter(tmp_path / "wide", rank=32, targets=("q_proj", "v_proj"))
    settings = (
        "arms.panel.adapter=./fits",
        "arms.thinking.model=./other",
        "arms.think_tags.trained_as=none",
        "arms.think_tags.adapter=./wide",
        "gate.anyway=true",  # one arm starts from an adapter, the other from its base
    )
    words = ["--arms", "panel,thinking,think_tags", *(word for one in settings for word in ("--set", one))]
    store, result = Store(tmp_path / "store"), mini.finish(tmp_path / "store", *words)
    accounts = [about for _, about in Ledger(store.root).accounts()]
    models = {(about["arm"], about["model"]) for about in accounts}
    assert models == {("panel", "demo"), ("thinking", "other"), ("think_tags", "demo")}
    imported = {str(r) for r in store.refs("training") if store.manifest(r).recipe.stage == "import_adapter"}
    assert len(imported) == 2 and {a["adapter"] in imported for a in accounts if a["arm"] == "think_tags"} == {True}
    assert len(store.manifest(Ref.parse(result["report"])).recipe.inputs["trainings"]) == 2
    rows = summary(store, result)
    assert rows["think_tags"]["heldout_before"] is not None and rows["think_tags"]["gain"] is None
    assert rows["panel"]["gain"] is not None
    codes = {row["code"] for row in ask(store.root, result["report"], "report_audit").to_pylist()}
    assert {"different_models", "adapter_made_elsewhere"} <= codes


def test_a_study_in_two_places(tmp_path: Path) -> None:
    """Sampled and trained here without the encoder; embedded and reported there, from a light copy without weights."""
    here, there = tmp_path / "here", tmp_path / "there"
    done = mini.ended(here, "--without", "embeddings", "--set", "encoder.name=elsewhere")
    assert done.returncode == 75 and "left to another machine" in done.stderr
    kinds = {ref.kind for ref in Store(here).refs()}
    assert {"rollouts", "bands", "training", "passk"} <= kinds
    assert not {"calibrations", "embeddings", "diversity", "diversity_comparison", "report"} & kinds
    words = [warm.VARBAND, "export", "study", str(there), "--without", "weights", "--root", str(here), "--json"]
    copied = json.loads(warm.run(words).stdout)
    assert copied["left_bytes"] > 0 and copied["others"] == 0
    result = mini.finish(there, "--model", f"sha256:{model_digest(SHIPPED['demo'])}")
    assert Path(result["html"]).exists() and all(Store(there).fresh(ref) for ref in Store(here).refs())

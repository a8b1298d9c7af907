"""Training on what every arm has in its variance band: a study's `joint` pool."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from tests import mini


@pytest.mark.slow
def test_both_arms_train_on_the_same_problems(tmp_path: Path) -> None:
    result = mini.finish(tmp_path / "store", "--set", "train_on=joint")
    store = Store(tmp_path / "store")
    held = {r["problem_id"] for r in store.read(store.refs("splits")[0]).to_pylist() if r["split"] == "heldout"}
    own = [store.read(ref).to_pylist() for ref in store.refs("bands")]
    live = [{r["problem_id"] for r in rows if r["band"] == "variance"} for rows in own]
    assert len(live) == 2 and live[0] != live[1]
    pools = []
    for training in store.refs("training"):
        (bands,) = store.manifest(training).recipe.inputs["bands"]
        rows = store.read(Ref.parse(bands)).to_pylist()
        pools.append({r["problem_id"] for r in rows if r["band"] == "variance"})
        trained = pq.read_table(store.files(training) / "exposure.parquet")["problem_id"].to_pylist()
        assert trained and set(trained) <= pools[-1] - held
    assert pools == [live[0] & live[1]] * 2
    assert result["made"] == result["stages"]

"""A training that has nothing to train on is refused before anything is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.artifacts.manifest import Recipe, provenance
from storage.artifacts.schemas import Bands, Pool, Splits
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session
from tasks.training import train_adapter
from tests.engines.learning.test_learner import CONFIG


@pytest.mark.parametrize(
    ("split", "banded", "words"),
    [
        ("train", True, "panel: no training problem is in the variance band"),
        ("heldout", False, "panel: every problem of the pool is held out, so none is left to train on"),
    ],
)
def test_a_pool_with_nothing_to_train_on(tmp_path: Path, split: str, banded: bool, words: str) -> None:
    """One problem: outside held-out and never solved, so no group would have a gradient; or held out itself."""
    store = Store(tmp_path)
    store.prepare()
    problem = {"problem_id": "p", "source": "s"}
    texts = dict.fromkeys(("source_id", "problem", "gold", "gold_raw", "answer_type", "cluster"), "1")
    pool, splits, bands = Pool.of("0" * 16), Splits.of("0" * 16), Bands.of("0" * 16)
    for ref, row in (
        (pool, texts),
        (splits, {"split": split}),
        (bands, {"arm": "panel", "group_size": 8, "num_correct": 0, "band": "all_zero"}),
    ):
        recipe = Recipe(stage=f"import_{ref.kind}", version=1, arguments={}, inputs={})
        table = pa.Table.from_pylist([problem | row], schema=ref.schema)
        store.write(ref, Payload(table), recipe, provenance(0.0))
    start, draw = Policy(arm="panel", model=BaseModel(name="demo", sha256="0")), Sampling(max_tokens=8, seed=0)
    how: dict[str, Any] = {"learner": CONFIG, "rollouts": draw, "evaluation": draw, "evaluation_group_size": 1}
    with session(Session(store, Toolbox())), pytest.raises(UserError, match=words):
        train_adapter(pool=pool, splits=splits, bands=bands if banded else None, start=start, **how)

"""What a user can get wrong about training: one sentence that says what to do, exit code 2, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.kinds import Bands, Pool, Splits
from storage.artifacts.manifest import Recipe
from storage.artifacts.provenance import provenance
from storage.artifacts.store import Payload, Store
from storage.errors import UserError
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.learning.learner import Execution
from tasks.engines.toolbox import Toolbox
from tasks.stage import Session, session
from tasks.training import train_adapter
from tests.engines.learning.test_learner import CONFIG, run

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"


def said(wrong: Callable[[], object]) -> str:
    """The sentence; the command line prints it and exits with 2."""
    with pytest.raises(UserError) as raised:
        wrong()
    assert raised.value.exit_code == 2 and "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("split", "banded", "words"),
    [
        ("train", True, "panel: no problem outside held-out is in the variance band"),
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
    with session(Session(store, Toolbox())):
        last = said(
            lambda: train_adapter(
                pool=pool,
                splits=splits,
                bands=bands if banded else None,
                start=start,
                learner=CONFIG,
                rollouts=draw,
                evaluation=draw,
                evaluation_group_size=1,
            )
        )
    assert last.startswith(words)


def test_memory_too_small_for_the_learner_is_said_with_the_estimate(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the weights are read: the loader is never reached."""
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    greedy = Execution(device="cpu", token_budget=10**9)
    last = said(lambda: run(tiny_base, tmp_path, execution=greedy))
    assert "training needs about" in last and "GiB are free; lower token_budget" in last

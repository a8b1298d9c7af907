"""What a user can get wrong about training: one sentence that says what to do, exit code 2, nothing lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from cli.main import main
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
from tests.engines.conftest import tiny
from tests.engines.learning.test_learner import CONFIG, run
from tests.mini import SETTINGS

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"


def said(wrong: Callable[[], object]) -> str:
    """The sentence; the command line prints it and exits with 2."""
    with pytest.raises(UserError) as raised:
        wrong()
    assert raised.value.exit_code == 2 and "\n" not in str(raised.value)
    return str(raised.value)


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> str:
    """What `varband run demo …` says on its way out with exit code 2."""
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    monkeypatch.setattr("sys.argv", ["varband", "run", "demo", "--plain", "--root", str(root), *sets, *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    return last


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_where_the_profile_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    last = typed(monkeypatch, capsys, tmp_path, "--set", "hardware.device=cuda")
    assert "the profile runs on an NVIDIA GPU (hardware.device=cuda) and this machine has none" in last
    assert not list(tmp_path.glob("rollouts/*"))


def test_a_rank_that_the_engine_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    last = typed(monkeypatch, capsys, tmp_path, "--set", "training.lora_rank=600", "--set", "training.lora_alpha=600")
    assert "LoRA rank 600: vLLM serves at most 512" in last
    assert not list(tmp_path.glob("rollouts/*"))


def test_a_rank_of_experts_for_a_model_without_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    last = typed(monkeypatch, capsys, tmp_path, "--set", "training.expert_rank=8")
    assert last == "varband: learner: expert_rank is 8 and the base model has no experts; leave it out"
    assert not list(tmp_path.glob("rollouts/*"))


def test_a_base_folder_with_a_missing_shard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "half"
    shutil.copytree(DEMO, folder)
    parts = {"a": "model.safetensors", "b": "model-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    last = typed(monkeypatch, capsys, tmp_path / "store", "--model", str(folder))
    assert last == f"varband: model folder {folder}: 1 of 2 shards are missing, first model-00002.safetensors"


def test_an_adapter_of_another_base_model_of_the_same_shape(tiny_base: Path, tmp_path: Path) -> None:
    from transformers import Qwen3ForCausalLM

    first = run(tiny_base, tmp_path / "a", replace(CONFIG, steps=1))
    twin, moved = tmp_path / "twin", tmp_path / "moved"
    torch.manual_seed(1)
    Qwen3ForCausalLM(tiny(initializer_range=0.2)).save_pretrained(twin)
    last = said(lambda: run(twin, tmp_path / "b", replace(CONFIG, steps=1), init=first.adapter_folder))
    assert "was trained on base, and the weights in " in last
    shutil.copytree(tiny_base, moved)
    run(moved, tmp_path / "c", replace(CONFIG, steps=1), init=first.adapter_folder)


def test_a_checkpoint_of_another_recipe(tiny_base: Path, tmp_path: Path) -> None:
    run(tiny_base, tmp_path, replace(CONFIG, steps=1))
    last = said(lambda: run(tiny_base, tmp_path, replace(CONFIG, steps=1, learning_rate=5e-3)))
    assert "a checkpoint of another recipe" in last and "a folder of its own" in last


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

"""Weights that are not all there, or not as config.json says, are a sentence before anything is sampled by them; a
mixture as the hub has it is loaded whole."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flows.study.models import base_model
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.engines.hardware import Hardware
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.model_files import loaded_bytes, refuse_holes, stored_weights
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.tiny_model import write_tiny_mixture

INDEX = "model.safetensors.index.json"
SHARD = "model-00010-of-00015.safetensors"

SHAPE: dict[str, Any] = {"num_hidden_layers": 4, "num_experts": 16, "moe_intermediate_size": 24, "vocab_size": 640}
LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=8, lora_alpha=8)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In shards as the hub has them, with an index."""
    made = tmp_path_factory.mktemp("sharded")
    return write_tiny_mixture(made, max_shard_size="80KB", tie_word_embeddings=False, **SHAPE)


@pytest.fixture
def folder(mixture: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mixture, tmp_path / "mixture"))


def changed(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def expert(tensors: dict[str, torch.Tensor]) -> str:
    """One that is neither a layer's first nor its last."""
    return next(name for name in sorted(tensors) if ".experts.3." in name)


def cut(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-100])


def cut_in_its_header(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:50])


def without(*parts: str) -> Callable[[Path], None]:
    """Without every weight whose name has one of these parts, in files and index."""

    def spoil(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        gone = [name for name in index["weight_map"] if any(part in name for part in parts)]
        assert gone
        for name in gone:
            del index["weight_map"][name]
        (folder / INDEX).write_text(json.dumps(index))
        for file in folder.glob("*.safetensors"):
            changed(file, lambda tensors: [tensors.pop(name, None) for name in gone])

    return spoil


@pytest.mark.parametrize("spoil", [cut, cut_in_its_header])
def test_files_that_are_not_whole_are_refused_by_their_headers(folder: Path, spoil: Callable[[Path], None]) -> None:
    """As a download leaves them that broke off."""
    spoil(folder)
    with pytest.raises(UserError, match=f"{SHARD}: it is truncated or not a safetensors file"):
        base_model("mixture", folder)


def narrow(folder: Path) -> None:
    changed(folder / SHARD, lambda tensors: tensors.update({expert(tensors): torch.zeros(24, 31)}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("layers.2.mlp.experts.3.up_proj"), "the number or size of its experts differs"),
        (narrow, "the number or size of its experts differs"),
        (
            without("layers.2.mlp.experts.15."),
            r"the shapes of 2 weights do not match .* for example model\.layers\.2\.mlp\.experts",
        ),
        (without("layers.2.mlp.gate.weight"), r"1 weights are missing, for example model\.layers\.2\.mlp\.gate"),
    ],
)
def test_no_engine_is_given_a_model_with_a_hole(folder: Path, spoil: Callable[[Path], None], said: str) -> None:
    """By transformers' report: vLLM leaves a hole as memory was, transformers makes numbers up."""
    refuse_holes(folder)
    spoil(folder)
    for start in (refuse_holes, lambda folder: TransformersGenerator(folder, Hardware(device="cpu"))):
        with pytest.raises(UserError, match=said):
            start(folder)


def test_what_is_loaded_counts_in_the_type_that_it_is_loaded_in(folder: Path) -> None:
    """Published in float32 a model is as large in a GPU's memory as one in bfloat16: it was planned twice as large."""
    stored = stored_weights(folder)
    values = sum(tensor.numel() for file in folder.glob("*.safetensors") for tensor in load_file(file).values())
    assert len(stored) == len(json.loads((folder / INDEX).read_text())["weight_map"])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for file in folder.glob("*.safetensors"):
            save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file, {"format": "pt"})
        assert [loaded_bytes(folder, width) for width in (2, 4)] == [2 * values, 4 * values]
    changed(folder / SHARD, lambda tensors: tensors.update({expert(tensors): tensors[expert(tensors)].to(torch.int8)}))
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "some"}}
    (folder / "config.json").write_text(json.dumps(config))
    assert loaded_bytes(folder, 4) == 4 * values - 3 * 24 * 32


def test_every_expert_is_where_its_name_says(mixture: Path) -> None:
    index = json.loads((mixture / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 1 and loaded_bytes(mixture, 4) == index["metadata"]["total_size"]
    policy = Policy(mixture, LEARNER, Execution(device="cpu"))
    stored = {name: tensor for file in files for name, tensor in load_file(mixture / file).items()}
    for layer in range(4):
        experts = policy.body.get_submodule(f"layers.{layer}.mlp.experts")
        for e in range(16):
            named = f"model.layers.{layer}.mlp.experts.{e}"
            gate_up = torch.cat([stored[f"{named}.gate_proj.weight"], stored[f"{named}.up_proj.weight"]])
            assert torch.equal(experts.gate_up_proj[e], gate_up.float()), named
            assert torch.equal(experts.down_proj[e], stored[f"{named}.down_proj.weight"].float()), named
    assert torch.equal(policy.head, stored["lm_head.weight"].float())

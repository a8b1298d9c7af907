"""A mixture as the hub has it: an index, shards cut anywhere, an expert's matrices by names of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.stored_weights import loaded_bytes
from tests.random_mixture import CONFIG, named_shapes, write_mixture

SMALL: dict[str, Any] = CONFIG | {
    "head_dim": 16,
    "hidden_size": 32,
    "intermediate_size": 96,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 4,
    "vocab_size": 64,
}
LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=8, lora_alpha=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sharded")
    write_mixture(made, SMALL, shards=16)
    return made


def test_names_and_shapes_are_those_of_the_published_checkpoint() -> None:
    """18,867 tensors; the hub's index of Qwen3-30B-A3B says 61,064,245,248 bytes."""
    shapes = dict(named_shapes(CONFIG))
    assert len(shapes) == 18_867
    assert 2 * sum(rows * (columns or 1) for rows, columns in shapes.values()) == 61_064_245_248


def test_every_expert_is_where_its_name_says(folder: Path) -> None:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) == 16 and loaded_bytes(folder, 2) == index["metadata"]["total_size"]
    policy = Policy(folder, LEARNER, Execution(device="cpu"))
    stored = {name: tensor for file in files for name, tensor in load_file(folder / file).items()}
    for layer in range(4):
        experts = policy.body.get_submodule(f"layers.{layer}.mlp.experts")
        for e in range(16):
            named = f"model.layers.{layer}.mlp.experts.{e}"
            gate_up = torch.cat([stored[f"{named}.gate_proj.weight"], stored[f"{named}.up_proj.weight"]])
            assert torch.equal(experts.gate_up_proj[e], gate_up.float()), named
            assert torch.equal(experts.down_proj[e], stored[f"{named}.down_proj.weight"].float()), named
    assert torch.equal(policy.head, stored["lm_head.weight"].float())


def test_a_shard_that_is_missing_is_named_before_anything_is_read(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        if file.name != "model-00007-of-00016.safetensors":
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(UserError, match=r"1 of 16 shards are missing, first model-00007-of-00016\.safetensors"):
        read_config(tmp_path)

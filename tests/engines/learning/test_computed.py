"""What the learner does not compute is refused before it samples: it would train another policy than the one that does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.engines.learning.memory_plan import check_trainable
from tasks.engines.learning.policy import Execution
from tasks.engines.learning.training_memory import fixed_bytes
from tests.tiny_model import write_tiny_mixture, write_tiny_model

LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=4, lora_alpha=4)


def changed(folder: Path, **config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "base")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sliding_window": 8, "model_type": "mistral"}, r"sliding_window=8 \(hardware.max_model_len=8 or less"),
        ({"sliding_window": 8, "model_type": "qwen3", "use_sliding_window": True}, "sliding_window=8"),
        ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, "sliding_window=8"),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping=30\.0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"logits_scaling": 8.0}, "logits_scaling=8"),
        ({"logit_scale": 0.0625}, "logit_scale=0.0625"),
        ({"model_type": "gpt_oss"}, "attention sinks"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of linear_attention"),
        ({"model_type": "falcon_h1"}, "layers of a recurrent kind"),
        ({"model_type": "cohere"}, r"logit_scale=0\.0625"),  # as its class has it
        ({"model_type": "gemma4_text", "max_position_embeddings": 8192}, "sliding_window=512"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ],
)
def test_attention_and_heads_of_other_kinds_are_refused(base: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"plain attention and a plain head, and this model has .*{said}"):
        check_trainable(changed(base, **config), LEARNER, gpu=False, longest=600)


@pytest.mark.parametrize(
    "config",
    [
        {"sliding_window": 4096, "model_type": "qwen2", "use_sliding_window": False},
        {"sliding_window": 4096, "model_type": "qwen3_moe"},
        {"sliding_window": 512, "model_type": "mistral"},  # none is longer
        {"sliding_window": None, "model_type": "mistral"},
        {"sliding_window": 8, "layer_types": ["full_attention"] * 2},
        {"sliding_window": 8, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
        {"logits_scaling": 1.0, "final_logit_softcapping": None},
    ],
)
def test_what_changes_nothing_is_trained(base: Path, config: dict[str, Any]) -> None:
    check_trainable(changed(base, **config), LEARNER, gpu=False, longest=512)


def test_a_head_with_a_bias_is_refused(base: Path) -> None:
    weights = load_file(base / "model.safetensors")
    save_file(weights | {"lm_head.bias": torch.ones(len(weights["lm_head.weight"]))}, base / "model.safetensors")
    with pytest.raises(UserError, match=r"this model has lm_head\.bias"):
        check_trainable(base, LEARNER, gpu=False)


@pytest.mark.parametrize(
    ("shape", "targets", "said"),
    [
        ({"mlp_only_layers": [1]}, ("q_proj", "up_proj", "gate_proj"), "some of its layers have experts and others"),
        ({"decoder_sparse_step": 2}, ("down_proj",), "some of its layers have experts and others"),
        ({}, ("q_proj", "up_proj"), "has one of gate_proj and up_proj"),
        ({"mlp_only_layers": [1]}, ("q_proj",), ""),
        ({}, ("gate_proj", "up_proj"), ""),
    ],
)
def test_adapters_of_experts_that_peft_would_load_in_part(
    tmp_path: Path, shape: dict[str, Any], targets: tuple[str, ...], said: str
) -> None:
    mixture = write_tiny_mixture(tmp_path / "mixture", **shape)
    learner = replace(LEARNER, target_modules=targets)
    if not said:
        return check_trainable(mixture, learner, gpu=False)
    with pytest.raises(UserError, match=said):
        check_trainable(mixture, learner, gpu=False)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"model.layers.0.self_attn.q_proj.weight": torch.int32}, r"q_proj\.weight is stored as I32, no float"),
        ({"model.layers.0.self_attn.q_proj.weight": torch.bool}, "stored as BOOL"),
        ({"model.layers.0.self_attn.q_proj.weight": torch.float8_e4m3fn}, "stored as F8_E4M3"),
        ({"model.layers.0.self_attn.q_proj.weight_scale_inv": None}, "weight_scale_inv is of weights that are quan"),
    ],
)
def test_numbers_that_would_be_taken_for_weights_are_refused(base: Path, stored: dict[str, Any], said: str) -> None:
    weights = load_file(base / "model.safetensors")
    for name, dtype in stored.items():
        weights[name] = torch.ones(2) if dtype is None else weights[name].to(dtype)
    save_file(weights, base / "model.safetensors")
    with pytest.raises(UserError, match=said):
        check_trainable(base, LEARNER, gpu=False)
    changed(base, quantization_config={"quant_method": "fp8"})
    check_trainable(base, LEARNER, gpu=False)


def test_the_weights_that_kl_is_measured_to_are_planned_for(base: Path) -> None:
    """And those of now, which are put aside while it is."""
    plain, kl = (fixed_bytes(base, replace(LEARNER, kl_weight=w), Execution(), 4) for w in (0.0, 0.1))
    shapes = {
        "q": (64, 64),
        "k": (64, 64),
        "v": (64, 64),
        "o": (64, 64),
        "g": (64, 128),
        "u": (64, 128),
        "d": (128, 64),
    }
    assert kl - plain == 2 * 4 * 2 * sum(4 * (rows + columns) for rows, columns in shapes.values())

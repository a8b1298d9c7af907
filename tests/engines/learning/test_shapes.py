"""What a model's config.json says of its shape is counted, and what it does not is a sentence before anything is loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION
from tasks.engines.learning.memory_plan import (
    check_positions,
    check_trainable,
    lora_parameters,
    merging_bytes,
    read_config,
)
from tasks.engines.learning.policy import Execution
from tasks.engines.learning.training_memory import plan_training
from tests.engines.learning.test_memory_plan import DENSE, LEARNER, MIXTURE
from tests.hollow import hollow_weights


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 2.0}}, 200),
        ({"max_position_embeddings": 400, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 400),
        ({"max_position_embeddings": 100, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 100),
    ],
)
def test_no_sequence_is_longer_than_the_model(tmp_path: Path, config: dict[str, Any], positions: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()
    check_positions(tmp_path, positions)
    with pytest.raises(UserError, match=rf"max_model_len is {positions + 1} and the model has {positions} positions"):
        check_positions(tmp_path, positions + 1)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gpt2", "n_embd": 8}, "type 'gpt2' says no hidden_size"),
        ({"model_type": "qwen3_vl", "text_config": DENSE}, "type 'qwen3_vl' says no hidden_size"),
        (DENSE | {"hidden_size": "8"}, "says hidden_size '8'"),
        (DENSE | {"num_hidden_layers": 0}, "says num_hidden_layers 0"),
        (
            {name: value for name, value in MIXTURE.items() if name != "num_experts_per_tok"},
            "says no num_experts_per_tok",
        ),
    ],
)
def test_a_shape_that_cannot_be_counted_is_said(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    """It was a traceback of `plan`."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    hollow_weights(tmp_path / "model.safetensors", 500)
    with pytest.raises(UserError, match=said):
        plan_training(tmp_path, LEARNER, Execution(token_budget=8), 2, None)
    if "num_experts_per_tok" not in said:
        with pytest.raises(UserError, match=said):
            check_trainable(tmp_path, LEARNER, gpu=False)


def test_an_expert_is_as_wide_as_either_name_says(tmp_path: Path) -> None:
    """Mixtral's and gpt-oss's are `num_local_experts` of `intermediate_size`."""
    theirs = {name: value for name, value in MIXTURE.items() if name not in ("num_experts", "moe_intermediate_size")}
    theirs |= {"num_local_experts": 4, "intermediate_size": 6}
    assert lora_parameters(theirs, 2) == lora_parameters(MIXTURE, 2)
    assert merging_bytes(theirs, 2) == merging_bytes(MIXTURE, 2) == 6 * 4 * 6 * 8 * 2


def test_experts_of_another_kind_are_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    """Their layers were not found: after the screening, or, beside a shared expert, never."""
    hollow_weights(tmp_path / "model.safetensors", 500)
    for kind, said in (("mixtral", "of type 'mixtral' are not trained, those of qwen3_moe are"), ("qwen3_moe", "")):
        (tmp_path / "config.json").write_text(json.dumps(MIXTURE | {"model_type": kind}))
        check_trainable(tmp_path, replace(LEARNER, target_modules=ATTENTION), gpu=False)
        learner = replace(LEARNER, lora_rank=4)
        if said:
            with pytest.raises(UserError, match=said):
                check_trainable(tmp_path, learner, gpu=False)
        else:
            check_trainable(tmp_path, learner, gpu=False)


def test_a_config_that_is_no_table_is_said(tmp_path: Path) -> None:
    hollow_weights(tmp_path / "model.safetensors", 500)
    for text in ("[1, 2]", "null"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=r"config\.json is no table"):
            read_config(tmp_path)

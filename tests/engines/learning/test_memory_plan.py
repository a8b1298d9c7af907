"""Memory known from the config: counted by hand for a dense model and a mixture, and refused before loading."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import UserError
from tasks.domain.grpo.types import ATTENTION, LearnerConfig
from tasks.engines.learning.memory_plan import (
    activation_bytes,
    check_positions,
    lora_parameters,
    plan_memory,
    read_config,
)
from tasks.engines.learning.policy import Execution

LEARNER = LearnerConfig(steps=1, groups_per_step=1, group_size=2, learning_rate=1e-3, lora_rank=2, lora_alpha=2)
DENSE: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 3,
    "vocab_size": 10,
}
MIXTURE = DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}


def test_lora_parameters_by_hand() -> None:
    """Attention (8+8)+(8+4)+(8+4)+(8+8) = 56 a rank and layer; an MLP 3·(8+16) = 72, four experts 4·3·(8+6) = 168."""
    assert lora_parameters(DENSE, LEARNER) == 2 * 3 * (56 + 72)
    assert lora_parameters(MIXTURE, LEARNER) == 2 * 3 * (56 + 168)
    assert lora_parameters(MIXTURE, replace(LEARNER, target_modules=ATTENTION)) == 2 * 3 * 56


def test_the_estimate_counts_what_the_learner_allocates(tmp_path: Path) -> None:
    """Of a real mixture: the flat vector of all matrices is as long as the estimate says."""
    from tasks.engines.learning.policy import Policy
    from tests.engines.sampling.test_serving import moe_base, moe_config

    base = moe_base(tmp_path / "moe")
    for targets in ("attention", "experts"):
        policy = Policy(base, moe_config(targets), Execution(device="cpu"))
        assert policy.lora.master.numel() == lora_parameters(read_config(base), moe_config(targets))


def test_activations_by_hand() -> None:
    """Two bytes a value. Dense: 10·8 + 4·8 + 4·16 = 176 a layer; a mixture: 10·8 + 4·8 + 2·2·6 = 136 and
    2·4·(6 + 8) = 112 in passing; dense and fused 6·8 + 2·8 + 4·4 + 2·16 = 112."""
    assert activation_bytes(DENSE, 2, recompute=False) == 2 * 3 * 176
    assert activation_bytes(DENSE, 2, recompute=True) == 2 * (176 + 3 * 8)
    assert activation_bytes(MIXTURE, 2, recompute=False) == 2 * (3 * 136 + 112)
    assert activation_bytes(DENSE, 2, recompute=False, fused=True) == 2 * 3 * 112
    assert activation_bytes(MIXTURE, 2, recompute=True, fused=True) == 2 * (136 + 112 + 3 * 8)


def test_recomputes_where_memory_asks_for_it_and_refuses_where_even_that_is_too_little(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    execution = Execution(token_budget=100, logprob_chunk=1)
    fixed = 1000 + lora_parameters(DENSE, LEARNER) * 20 + 10 * 10
    whole, little = (fixed + 100 * activation_bytes(DENSE, 2, recompute=r) for r in (False, True))
    assert not plan_memory(tmp_path, LEARNER, execution, 2, free=2 * whole)
    assert plan_memory(tmp_path, LEARNER, execution, 2, free=whole)
    with pytest.raises(
        UserError, match=r"training needs about 0\.0 GiB with packs of 100 tokens and 0\.0 GiB are free"
    ):
        plan_memory(tmp_path, LEARNER, execution, 2, free=little)


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

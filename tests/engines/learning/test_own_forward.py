"""The learner computes the model that it has loaded, of whatever type it is, or says that it does not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.engines.learning import attention
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.model_checks import TRIED, check_positions, check_trainable
from tests.tiny_model import DEMO, write_tiny_mixture, write_tiny_model, write_tiny_of

LEARNER = LearnerConfig(
    steps=1,
    groups_per_step=1,
    group_size=2,
    learning_rate=1e-3,
    lora_rank=4,
    lora_alpha=4,
    target_modules=tuple(ATTENTION),
)
APART = "log-probs differ by .* from those of the model's own forward pass"


def learner_of(base: Path, temperature: float = 1.0, dtype: str = "float32") -> Policy:
    return Policy(base, LEARNER, Execution(device="cpu", dtype=dtype), temperature)


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.9), ("bfloat16", 0.5)])
def test_another_attention_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, share: float
) -> None:
    """As if a model divided its scores by something of its own."""
    base, attend = write_tiny_of("llama", tmp_path / "base"), attention._by_segment
    monkeypatch.setattr(attention, "_by_segment", lambda q, k, v, scaling, at: attend(q, k, v, scaling * share, at))
    with pytest.raises(UserError, match=f"base: the learner's {APART}"):
        learner_of(base, dtype=dtype)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize(("dtype", "large"), [("float32", 1.0), ("bfloat16", 6.0)])
def test_rounding_is_no_other_policy(tmp_path: Path, temperature: float, dtype: str, large: float) -> None:
    """At low temperatures and in surer models a log-prob is rounded by more: here by up to 3."""
    learner_of(DEMO, temperature, dtype)
    learner_of(write_tiny_of("qwen3_moe", tmp_path / "base", lambda weight: weight * large), temperature, dtype)


SLIDING = {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}
GATE_UP = ("gate_proj", "up_proj")


@pytest.mark.parametrize(
    ("config", "targets", "longest", "said"),
    [
        ({"model_type": "gpt_oss"}, ATTENTION, 8, "not tested with models of type 'gpt_oss'"),
        ({"sliding_window": 8, "model_type": "mistral"}, ATTENTION, 9, "only up to 8 tokens"),
        (SLIDING, ATTENTION, None, "only up to 8 tokens"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, ATTENTION, 8, "depends on the longest rollout"),
        ({"model_type": "qwen3_moe"}, ("q_proj", "up_proj"), 8, "gate_proj and up_proj only together"),
        ({"model_type": "qwen3_moe"}, GATE_UP, 8, ""),
        ({"model_type": "mixtral"}, GATE_UP, 8, "only in models of type qwen3_moe"),
        ({"model_type": "mixtral"}, ATTENTION, 8, ""),
    ],
)
def test_what_the_learner_does_not_compute_is_refused_before_it_samples(
    tmp_path: Path, config: dict[str, Any], targets: tuple[str, ...], longest: int | None, said: str
) -> None:
    """It would train another policy than the one that samples."""
    mixture = "moe" in str(config) or "mixtral" in str(config)
    base = (write_tiny_mixture if mixture else write_tiny_model)(tmp_path / "base")
    (base / "config.json").write_text(json.dumps(json.loads((base / "config.json").read_text()) | config))
    learner = replace(LEARNER, target_modules=targets)
    if not said:
        return check_trainable(base, learner, gpu=False, longest=longest)
    with pytest.raises(UserError, match=said):
        check_trainable(base, learner, gpu=False, longest=longest)


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 2.0}}, 200),
    ],
)
def test_no_sequence_is_longer_than_the_model(tmp_path: Path, config: dict[str, Any], known: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()
    check_positions(tmp_path, known)
    with pytest.raises(UserError, match=rf"max_model_len is {known + 1}, but the model has only {known} positions"):
        check_positions(tmp_path, known + 1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("doge", APART),  # a mask that its own weights make
        ("stablelm", "StableLmAttention: the model does not tell its attention which rows belong to one rollout"),
        ("phi3", "no linear layer with this name: k_proj, q_proj, v_proj"),
    ],
)
def test_types_that_no_field_gives_away_are_refused(tmp_path: Path, kind: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        learner_of(write_tiny_of(kind, tmp_path / kind))


@pytest.mark.parametrize("kind", TRIED)
def test_types_on_the_list_are_computed(tmp_path: Path, kind: str) -> None:
    learner_of(write_tiny_of(kind, tmp_path / kind))

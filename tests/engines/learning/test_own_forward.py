"""The learner computes the model that it has loaded, of whatever type it is, or says that it does not."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.engines.learning import attention
from tasks.engines.learning.computed import steady_positions
from tasks.engines.learning.memory_plan import check_trainable, positions
from tasks.engines.learning.policy import Execution, Policy
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
APART = "log-probs are .* away from those of the model's own forward pass"
#: Decoders that the learner computes, by the word of their config.json.
COMPUTED = (
    *("afmoe", "apertus", "arcee", "bitnet", "diffllama", "ernie4_5", "ernie4_5_moe", "exaone4", "flex_olmo", "gemma"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "granite", "granitemoe", "helium", "hunyuan_v1_dense", "llama"),
    *("ministral", "mistral", "mixtral", "olmo", "olmo2", "olmo3", "olmoe", "phimoe", "qwen2", "qwen2_moe", "qwen3"),
    *("qwen3_moe", "seed_oss", "smollm3", "starcoder2"),
)


#: Types whose own shape, layers or several parts ask for fields that others do not have.
_UNMADE = (
    "axk1 axk2 bamba bart bigbird_pegasus blenderbot blenderbot-small blt codegen cohere_compass_text ctrl "
    "dbrx deepseek_v2 deepseek_v3 deepseek_v32 dots1 emu3 falcon fuyu gemma3 gemma3n gemma3n_text gemma4 "
    "gemma4_assistant gemma4_text gemma4_unified gemma4_unified_assistant git glm4_moe_lite glm_moe_dsa "
    "got_ocr2 gpt-sw3 gpt2 gpt_bigcode gptj granitemoehybrid hy_v4 jamba kimi_linear lfm2_moe llama4 "
    "longcat_flash mamba2 marian mbart minicpm3 mllama moshi mpt musicgen musicgen_melody mvp openai-gpt "
    "pegasus phi4_multimodal plbart qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp "
    "qwen4_exp_text reformer roc_bert trocr whisper xglm xlm xlnet xlstm xmod youtu zamba zamba2 zaya"
)
UNMADE = frozenset(_UNMADE.split())
LONG = {
    **{"rope_type": "longrope", "original_max_position_embeddings": 64, "factor": 4.0},
    **{"short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
}


def learner_of(base: Path, temperature: float = 1.0, dtype: str = "float32") -> Policy:
    check_trainable(base, LEARNER, gpu=False, longest=100)
    return Policy(base, LEARNER, Execution(device="cpu", dtype=dtype), temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_plain_decoder_and_a_mixture_are_computed(tmp_path: Path, temperature: float) -> None:
    learner_of(write_tiny_model(tmp_path / "dense"), temperature)
    learner_of(write_tiny_mixture(tmp_path / "mixture"), temperature)


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.9), ("bfloat16", 0.5)])
def test_another_attention_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, share: float
) -> None:
    """As if a model divided its scores by something of its own."""
    base, padded = write_tiny_of("llama", tmp_path / "base"), attention._padded
    monkeypatch.setattr(attention, "_padded", lambda q, k, v, scaling, at: padded(q, k, v, scaling * share, at))
    with pytest.raises(UserError, match=f"base: the learner's {APART}"):
        learner_of(base, dtype=dtype)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.01])
@pytest.mark.parametrize(("dtype", "large"), [("float32", 1.0), ("bfloat16", 1.0), ("bfloat16", 6.0)])
def test_rounding_is_no_other_policy(tmp_path: Path, temperature: float, dtype: str, large: float) -> None:
    """At low temperatures and in surer models a log-prob is rounded by more: here by up to 3."""
    learner_of(DEMO, temperature, dtype)
    learner_of(write_tiny_of("qwen3_moe", tmp_path / "base", lambda weight: weight * large), temperature, dtype)


@pytest.mark.parametrize("rope", [{"rope_type": "dynamic", "factor": 4.0}, LONG])
@pytest.mark.parametrize("said", ["rope_parameters", "rope_scaling"])
def test_positions_that_hang_on_a_packs_longest_are_refused(tmp_path: Path, rope: dict[str, Any], said: str) -> None:
    """Their frequencies would be those of whatever rollout is packed with it."""
    base = write_tiny_of("llama", tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    plain = config.pop("rope_parameters", {})
    turned = {said: plain | rope, "max_position_embeddings": 64}
    (base / "config.json").write_text(json.dumps(config | turned))
    for longest in (65, None):
        with pytest.raises(
            UserError, match=r"positions that hang on a pack's longest \(hardware.max_model_len=64 or less"
        ):
            check_trainable(base, LEARNER, gpu=False, longest=longest)
    check_trainable(base, LEARNER, gpu=False, longest=64)
    assert positions(base) == 64


@pytest.mark.parametrize(
    "rope", ["dynamic", [1], True, {"rope_type": "longrope", "original_max_position_embeddings": "x"}]
)
def test_what_is_no_table_of_positions_says_nothing_of_them(rope: object) -> None:
    assert steady_positions({"rope_scaling": rope}) is None


def test_positions_are_turned_by_what_transformers_reads_first() -> None:
    of_both = {"rope_scaling": LONG, "rope_parameters": {"rope_type": "default"}, "max_position_embeddings": 256}
    assert steady_positions(of_both) == steady_positions({"rope_scaling": LONG, "max_position_embeddings": 256}) == 64
    assert steady_positions({"rope_scaling": LONG, "original_max_position_embeddings": 32}) == 32


def test_positions_that_config_json_leaves_to_the_type_are_its_own() -> None:
    """Llama's 2,048, which transformers takes; of a type that nobody knows nothing is known."""
    silent = {"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    assert steady_positions(silent) == 2048
    assert steady_positions(silent | {"max_position_embeddings": 64}) == 64
    assert steady_positions(silent | {"model_type": "nobody's"}) is None
    assert steady_positions(silent | {"model_type": "rag"}) is None
    assert steady_positions(silent | {"model_type": "dbrx", "max_seq_len": 99}) == 99
    stretched = {"model_type": "phi3", "max_position_embeddings": 131072, "rope_scaling": {"rope_type": "longrope"}}
    assert steady_positions(stretched) == 4096


def test_a_model_whose_weights_are_no_numbers_is_refused(tmp_path: Path) -> None:
    base = write_tiny_of("llama", tmp_path / "base", lambda weight: weight * torch.nan)
    with pytest.raises(UserError, match="log-probs are nan away"):
        learner_of(base)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("doge", APART),  # a mask that its own weights make
        ("stablelm", "StableLmAttention: its model keeps from its attention which rows are of one rollout"),
        ("phi3", r"no layer of it is named k_proj, q_proj, v_proj \(training\.target_modules\)"),
    ],
)
def test_types_that_no_field_gives_away_are_refused(tmp_path: Path, kind: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        learner_of(write_tiny_of(kind, tmp_path / kind))


@pytest.mark.slow
def test_types_of_transformers_are_computed_or_refused_in_words(tmp_path: Path) -> None:
    """All but those of which the common fields make no small model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TYPES

    computed = set()
    for kind in {*TYPES} - UNMADE:
        base = write_tiny_of(kind, tmp_path / kind)
        with suppress(UserError):
            learner_of(base)
            computed.add(kind)
    assert computed >= {*COMPUTED}

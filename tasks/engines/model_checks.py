"""Checks from config.json whether the engines support a model, before anything is loaded or paid for.

The learner supports plain attention and a plain head. Tested model types are listed; of any model the log-probs are
compared with the model's own after loading (learning/own_forward.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.engines.hardware import Hardware
from tasks.engines.memory import lora_parameters
from tasks.engines.model_files import num_experts, read_config

#: Types of decoders whose log-probs agree with the learner's (tests/engines/learning/test_own_forward.py).
TRIED = (
    *("afmoe", "apertus", "arcee", "bitnet", "diffllama", "ernie4_5", "ernie4_5_moe", "exaone4", "flex_olmo", "gemma"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "helium", "hunyuan_v1_dense", "llama", "ministral", "mistral"),
    *("mixtral", "olmo", "olmo2", "olmo3", "olmoe", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss"),
    *("smollm3", "starcoder2"),
)
#: Mixtures whose layout of experts the learner supports.
TRAINED_EXPERTS = ("qwen3_moe",)


def check_trainable(base: Path, learner: LearnerConfig, *, gpu: bool, longest: int | None = None) -> None:
    """Raise UserError for an untested model type or rotary embedding, sequences longer than a sliding window, and
    experts that cannot be trained, or not with this rank. gpu: train in bfloat16, else in float32. longest: tokens of a
    prompt and its completion; None: unknown."""
    config = read_config(base)
    kind, name = str(config.get("model_type")), base.name
    if kind not in TRIED:
        raise UserError(
            f"{name}: the learner is not tested with models of type {kind!r} and might train another policy than the"
            f" sampled one; evaluate it untrained, or use a model of type {', '.join(TRIED)}"
        )
    lora_parameters(config, learner.lora_rank, learner.target_modules)
    if (turned := _rope(config)[0]) in ("dynamic", "longrope"):
        raise UserError(
            f"{name}: its rotary embedding ({turned}) depends on the longest rollout of a pack, so the learner would"
            " train another policy than the sampled one; evaluate it untrained"
        )
    known = window(config)
    if known and (longest is None or longest > known):
        raise UserError(
            f"{name}: because of its sliding window the learner can compute it only up to {known} tokens; set"
            f" hardware.max_model_len={known} or less, or evaluate it untrained"
        )
    of_experts = {*learner.target_modules} & {*EXPERT_PROJECTIONS} if num_experts(config) else set[str]()
    if of_experts and (kind not in TRAINED_EXPERTS or len(of_experts & {"gate_proj", "up_proj"}) == 1):
        raise UserError(
            f"{name}: experts can be trained only in mixtures of type {TRAINED_EXPERTS[0]}, and there gate_proj and"
            f" up_proj only together; change training.target_modules, for example to {','.join(ATTENTION)}"
        )
    check_rank(learner.lora_rank, learner.expert_rank, num_experts(config) if of_experts else 0, 2 if gpu else 4)


def window(config: dict[str, Any]) -> int | None:
    """Return the smallest sliding window of a layer, in tokens; None without one.

    >>> window({"sliding_window": 4096}), window({"sliding_window": 4096, "model_type": "qwen2"})
    (4096, None)
    >>> window({"sliding_window": 512, "layer_types": ["full_attention"] * 2})
    """
    qwen = str(config.get("model_type")).startswith("qwen")
    types = config.get("layer_types")
    first = config.get("max_window_layers", 0) if qwen and not types else 0
    used = config.get("use_sliding_window", not qwen) and first < config.get("num_hidden_layers", 1)
    width = config.get("sliding_window")
    return int(width) if used and width and (not types or "sliding_attention" in types) else None


def _rope(config: dict[str, Any]) -> tuple[str | None, float]:
    """Return (type of scaling of positions, factor), from either field name of transformers."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return rope.get("rope_type", rope.get("type")), rope.get("factor") or 1.0


def positions(base: Path) -> int | None:
    """Return the longest sequence that a model supports; None if config.json does not say. With linear scaling of
    positions, and only then, the number in config.json is the one before scaling."""
    config = read_config(base)
    scaled, factor = _rope(config)
    known = config.get("max_position_embeddings")
    return known and int(known * (factor if scaled == "linear" else 1))


def check_positions(base: Path, max_model_len: int) -> None:
    """Raise UserError if prompt and completion may be longer than the model's positions."""
    known = positions(base)
    if known and max_model_len > known:
        raise UserError(
            f"{base.name}: hardware.max_model_len is {max_model_len} and the model has {known} positions; lower it, and"
            " max_tokens with it"
        )


def check_rank(rank: int, expert_rank: int | None, num_experts: int, bytes_per_value: int) -> None:
    """Raise UserError for an expert rank without experts, and for a rank whose rows are not a multiple of 16 bytes,
    which grouped products need. num_experts: number of experts with LoRA."""
    name, of_experts = ("lora_rank", rank) if expert_rank is None else ("expert_rank", expert_rank)
    if not num_experts and expert_rank is not None:
        raise UserError(f"learner: expert_rank is {expert_rank} and the base model has no experts; leave it out")
    if num_experts and of_experts * bytes_per_value % 16:
        raise UserError(
            f"learner: {name} is {of_experts}; LoRA of experts needs a multiple of {16 // bytes_per_value} here, or"
            " train the attention alone (target_modules=q_proj,k_proj,v_proj,o_proj)"
        )


def check_parallel(model: Path, hardware: Hardware) -> None:
    """Raise UserError if the number of GPUs per engine does not divide the attention heads."""
    heads = read_config(model).get("num_attention_heads", 0)
    if heads % hardware.tensor_parallel:
        raise UserError(
            f"hardware.tensor_parallel is {hardware.tensor_parallel}, and {model.name} has {heads} attention heads; set"
            " a number that divides them"
        )

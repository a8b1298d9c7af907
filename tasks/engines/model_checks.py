"""Whether the engines can take a model, by its config.json, before anything is loaded or paid for.

The learner computes plain attention and a plain head. Types that were tried are listed; of any model its log-probs are
compared with the model's own once it is loaded (learning/own_forward.py).
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
#: Mixtures whose experts the learner knows: the others' lie in memory in ways of their own.
TRAINED_EXPERTS = ("qwen3_moe",)


def check_trainable(base: Path, learner: LearnerConfig, *, gpu: bool, longest: int | None = None) -> None:
    """gpu: in bfloat16, else float32. longest: tokens of a prompt and its completion; None: not known.

    Errors: UserError for a type or rotary embedding that was not tried, for sequences longer than a sliding window, and
    for experts that are not trained, or not at this rank.
    """
    config = read_config(base)
    kind, name = str(config.get("model_type")), base.name
    if kind not in TRIED:
        raise UserError(
            f"{name}: the learner was not tried with models of type {kind!r}, and might train another policy than the"
            f" one that samples; evaluate it untrained, or take one of type {', '.join(TRIED)}"
        )
    lora_parameters(config, learner.lora_rank, learner.target_modules)
    if (turned := _rope(config)[0]) in ("dynamic", "longrope"):
        raise UserError(
            f"{name}: its rotary embedding ({turned}) follows the longest rollout of a pack, so that the learner would"
            " compute another policy than the one that samples; evaluate it untrained"
        )
    known = window(config)
    if known and (longest is None or longest > known):
        raise UserError(
            f"{name}: the learner computes it up to {known} tokens alone, because of its sliding window; set"
            f" hardware.max_model_len={known} or less, or evaluate it untrained"
        )
    of_experts = {*learner.target_modules} & {*EXPERT_PROJECTIONS} if num_experts(config) else set[str]()
    if of_experts and (kind not in TRAINED_EXPERTS or len(of_experts & {"gate_proj", "up_proj"}) == 1):
        raise UserError(
            f"{name}: experts are trained in mixtures of type {TRAINED_EXPERTS[0]} alone, and there gate_proj and"
            " up_proj together, which are one weight; change training.target_modules, for example to"
            f" {','.join(ATTENTION)}"
        )
    check_rank(learner.lora_rank, learner.expert_rank, num_experts(config) if of_experts else 0, 2 if gpu else 4)


def window(config: dict[str, Any]) -> int | None:
    """Return the tokens that a layer looks back on, of the layer that has fewest; None for all.

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
    """(how positions are scaled, by how much), under either name that transformers gave it."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return rope.get("rope_type", rope.get("type")), rope.get("factor") or 1.0


def positions(base: Path) -> int | None:
    """Return the longest sequence that a model reads; None if its config.json does not say.

    Linear scaling of positions alone writes the number before it there.
    """
    config = read_config(base)
    scaled, factor = _rope(config)
    known = config.get("max_position_embeddings")
    return known and int(known * (factor if scaled == "linear" else 1))


def check_positions(base: Path, max_model_len: int) -> None:
    """Errors: UserError if prompt and completion may be longer than the model has positions."""
    known = positions(base)
    if known and max_model_len > known:
        raise UserError(
            f"{base.name}: hardware.max_model_len is {max_model_len} and the model has {known} positions; lower it, and"
            " max_tokens with it"
        )


def check_rank(rank: int, expert_rank: int | None, num_experts: int, bytes_per_value: int) -> None:
    """num_experts: with LoRA. Errors: UserError for a rank of experts where there are none, and for one whose rows are
    no multiple of 16 bytes, which grouped products cannot read."""
    name, of_experts = ("lora_rank", rank) if expert_rank is None else ("expert_rank", expert_rank)
    if not num_experts and expert_rank is not None:
        raise UserError(f"learner: expert_rank is {expert_rank} and the base model has no experts; leave it out")
    if num_experts and of_experts * bytes_per_value % 16:
        raise UserError(
            f"learner: {name} is {of_experts}; LoRA of experts needs a multiple of {16 // bytes_per_value} here, or"
            " train the attention alone (target_modules=q_proj,k_proj,v_proj,o_proj)"
        )


def check_parallel(model: Path, hardware: Hardware) -> None:
    """Errors: UserError for more GPUs an engine than the attention heads can be dealt out to."""
    heads = read_config(model).get("num_attention_heads", 0)
    if heads % hardware.tensor_parallel:
        raise UserError(
            f"hardware.tensor_parallel is {hardware.tensor_parallel}, and {model.name} has {heads} attention heads,"
            " which cannot be dealt out so; take a number that divides them"
        )

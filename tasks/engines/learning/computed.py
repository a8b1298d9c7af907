"""What of a model the learner does not compute, or no sampler would serve: refused before anything is sampled, since
what is trained would be another policy than the one that samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.grpo.learner_config import EXPERT_PROJECTIONS
from tasks.engines.stored_weights import stored_weights

#: Fields of config.json that change log-probs behind plain attention and a plain head, and what says that they do not.
_BEHIND: dict[str, tuple[object, ...]] = {
    "attn_logit_softcapping": (None, 0),
    "final_logit_softcapping": (None, 0),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "attention_chunk_size": (None, 0),
    "use_bidirectional_attention": (None, False),
}
#: What a type of model has where its config.json is silent.
_DEFAULTS: dict[str, dict[str, object]] = {
    "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.0625, "sliding_window": 4096},
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096},
    "gemma3_text": {"sliding_window": 4096},
    "gemma3n_text": {"sliding_window": 512},
    "gemma4_text": {"sliding_window": 512},
    "gemma4_unified_text": {"sliding_window": 1024},
    "afmoe": {"sliding_window": 1024},
    "granite_swa": {"sliding_window": 128},
    "granitemoe_swa": {"sliding_window": 128},
    "mimo_v2_flash": {"sliding_window": 128},
    "nanochat": {"final_logit_softcapping": 15.0},
    "vaultgemma": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096},
    "cohere2_moe": {"sliding_window": 4096},
    "exaone4": {"sliding_window": 4096},
    "exaone_moe": {"sliding_window": 4096},
    "ministral": {"sliding_window": 4096},
    "mistral": {"sliding_window": 4096},
    "olmo3": {"sliding_window": 4096},
    "cwm": {"sliding_window": 8192},
}
#: Models with a weight in the attention's sum that no token has.
_SINKS = ("gpt_oss",)
#: Models with layers whose state runs on from token to token, into the next rollout of a pack.
_RECURRENT = (
    *("bamba", "falcon_h1", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "minimax", "nemotron_h", "olmo_hybrid"),
    *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "zamba", "zamba2"),
)
#: Of a weight's name, that it is of one of several layers.
_LAYER = re.compile(r"\.\d+\.")
_HEAD_BIAS = "lm_head.bias"


def window(config: dict[str, Any]) -> int | None:
    """Tokens that a layer looks back on, of the layer that has fewest; null for all.

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


def steady_positions(config: dict[str, Any]) -> int | None:
    """Tokens up to which a rollout's positions are turned alike whatever it is packed with; null for any number.

    Beyond, `dynamic` and `longrope` take their frequencies by the longest of a forward pass, which is of many rollouts.

    >>> steady_positions({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})
    64
    """
    given = rope_of(config)
    known, original, found = "max_position_embeddings", "original_max_position_embeddings", []
    for rope in (one for one in (given, *given.values()) if isinstance(one, dict)):
        kind = rope.get("rope_type", rope.get("type"))
        if kind == "longrope":
            found += [rope.get(original) or _said(config, original), config.get(original), _said(config, known)]
        elif kind == "dynamic" and rope.get("factor", 1) != 1 and "alpha" not in rope:
            found += [rope.get(original), _said(config, known)]
    return min((one for one in found if isinstance(one, int) and one > 0), default=None)


def _said(config: dict[str, Any], name: str) -> object:
    """As config.json has it, under its type's own word too, or what the type has where that is silent."""
    if config.get(name) is not None:
        return config[name]
    from transformers import CONFIG_MAPPING

    if (kind := str(config.get("model_type"))) not in CONFIG_MAPPING:
        return None
    known = CONFIG_MAPPING[kind]
    own = known.attribute_map.get(name, name)
    return config.get(own, getattr(known, own, None))


def rope_of(config: dict[str, Any]) -> dict[str, Any]:
    """How positions are turned, under either name that transformers gave it, in its order; empty for plainly."""
    given = config.get("rope_scaling") or config.get("rope_parameters")
    return given if isinstance(given, dict) else {}


def refuse_uncomputed(base: Path, config: dict[str, Any], longest: int | None) -> None:
    """longest: tokens of a prompt and its completion; null: not known. Errors: UserError."""
    kind = str(config.get("model_type"))
    config = _DEFAULTS.get(kind, {}) | config
    odd = [f"{name}={config[name]}" for name, plain in _BEHIND.items() if config.get(name) not in plain]
    if kind in _SINKS:
        odd.append(f"attention sinks (model_type={kind})")
    others = {*(config.get("layer_types") or ())} - {"full_attention", "sliding_attention"}
    if others or kind in _RECURRENT:
        odd.append(f"layers of {', '.join(sorted(others)) or 'a recurrent kind'} (model_type={kind})")
    if _HEAD_BIAS in stored_weights(base):
        odd.append(_HEAD_BIAS)
    if (width := window(config)) and (longest is None or longest > width):
        odd.append(f"sliding_window={width} (hardware.max_model_len={width} or less stays within it)")
    if (steady := steady_positions(config)) and (longest is None or longest > steady):
        odd.append(
            f"positions that hang on a pack's longest (hardware.max_model_len={steady} or less is not stretched)"
        )
    if odd:
        raise UserError(
            f"{base.name}: the learner computes plain attention and a plain head, and this model has {', '.join(odd)}:"
            " it would train another policy than the one that samples; evaluate it untrained, or take another"
        )


def _renamed(kind: str) -> bool:
    """Whether layers of this type may be stored otherwise than they are loaded."""
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    return bool(get_checkpoint_conversion_mapping(kind))


def refuse_unadapted(base: Path, kind: str, targets: Sequence[str]) -> None:
    """Errors: UserError where weights of layers are stored and no layer has the name of one to adapt."""
    of_layers = [name for name in stored_weights(base) if _LAYER.search(name)]
    missing = sorted(target for target in targets if not any(f".{target}." in name for name in of_layers))
    if of_layers and missing and not _renamed(kind):
        raise UserError(
            f"{base.name}: no layer of it is named {', '.join(missing)} (training.target_modules): name what it has,"
            " or evaluate it untrained"
        )


def refuse_unserved(base: Path, config: dict[str, Any], targets: Sequence[str]) -> None:
    """Of a mixture with these layers trained. Errors: UserError where peft would load a part of its adapter alone."""
    asked = {*targets} & {*EXPERT_PROJECTIONS}
    if len(asked & {"gate_proj", "up_proj"}) == 1:
        raise UserError(
            f"{base.name}: training.target_modules has one of gate_proj and up_proj, which are one weight of an expert:"
            " no sampler serves an adapter of a half; name both"
        )
    if asked and (config.get("mlp_only_layers") or (config.get("decoder_sparse_step") or 1) > 1):
        raise UserError(
            f"{base.name}: some of its layers have experts and others have none, and peft loads no adapter of both;"
            " train the attention alone (training.target_modules=q_proj,k_proj,v_proj,o_proj)"
        )

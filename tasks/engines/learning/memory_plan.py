"""Whether a model folder is one, and what fits it: memory and positions, known before its weights are read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.grpo.learner_config import ALL_LINEAR, ATTENTION, EXPERT_PROJECTIONS, LearnerConfig
from tasks.engines.learning.computed import refuse_unadapted, refuse_uncomputed, refuse_unserved, rope_of
from tasks.engines.learning.experts import check_rank
from tasks.engines.model_files import weight_files
from tasks.engines.stored_weights import loaded_bytes

GIB = 1 << 30
#: Mixtures whose experts the learner knows: the others' lie in memory in ways of their own.
TRAINED_EXPERTS = ("qwen3_moe",)


def read_config(base: Path) -> dict[str, Any]:
    """config.json of a model folder. Errors: UserError if config or weights are missing or shards are incomplete."""
    if not base.is_dir():
        raise UserError(f"model folder {base} does not exist")
    try:
        config = json.loads((base / "config.json").read_text())
    except FileNotFoundError:
        raise UserError(f"model folder {base} has no config.json: it is not a model in Hugging Face format") from None
    except (OSError, ValueError) as error:
        raise UserError(f"model folder {base}: config.json cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise UserError(f"model folder {base}: config.json is no table; it is not a model in Hugging Face format")
    shards = weight_files(base)
    if missing := [shard.name for shard in shards if not shard.is_file()]:
        raise UserError(f"model folder {base}: {len(missing)} of {len(shards)} shards are missing, first {missing[0]}")
    if not shards:
        raise UserError(f"model folder {base} has no weights (*.safetensors); other formats are not loaded")
    return config


def licence_of(base: Path) -> str | None:
    """As the front matter of the base model's README states it."""
    readme = base / "README.md"
    found = re.search(r"^license:\s*(\S+)\s*$", readme.read_text(), re.MULTILINE) if readme.is_file() else None
    return found[1] if found else None


def size(config: dict[str, Any], name: str, *others: str) -> int:
    """A number of a decoder's shape, by the first of these names that its config.json has.

    Errors: UserError if it has none of them, or what is no whole number above 0.
    """
    found = next((config[each] for each in (name, *others) if config.get(each) is not None), None)
    if not isinstance(found, int) or found < 1:
        said = f"no {name}" if found is None else f"{name} {found!r}"
        raise UserError(
            f"config.json of a model of type {config.get('model_type', 'unknown')!r} says {said}: what is not counted"
            " is neither trained nor served with an adapter; take a decoder of text alone"
        )
    return found


def num_experts(config: dict[str, Any]) -> int:
    """Experts of a mixture, under either name that transformers gave them; 0 for a dense model."""
    return config.get("num_experts") or config.get("num_local_experts") or 0


def lora_parameters(
    config: dict[str, Any], rank: int, targets: Sequence[str] = ALL_LINEAR, expert_rank: int | None = None
) -> int:
    """LoRA parameters of the targeted layers; each expert of a mixture has its own, of expert_rank if given."""
    hidden, inter, experts = size(config, "hidden_size"), inner_size(config), num_experts(config)
    heads, head, kv_heads = head_sizes(config)
    q, kv = heads * head, kv_heads * head
    sides = {"q_proj": hidden + q, "k_proj": hidden + kv, "v_proj": hidden + kv, "o_proj": q + hidden}
    attention = sum(sides.get(t, 0) for t in targets)
    mlp = (hidden + inter) * max(1, experts) * len({*targets} & {*EXPERT_PROJECTIONS})
    return (rank * attention + (expert_rank or rank) * mlp) * size(config, "num_hidden_layers")


def inner_size(config: dict[str, Any]) -> int:
    """Of an MLP, or of one expert of a mixture."""
    return size(config, *(["moe_intermediate_size"] if num_experts(config) else []), "intermediate_size")


def head_sizes(config: dict[str, Any]) -> tuple[int, int, int]:
    """(heads, width of one, heads of keys and values)."""
    heads = size(config, "num_attention_heads")
    head = config.get("head_dim") or size(config, "hidden_size") // heads
    return heads, head, config.get("num_key_value_heads") or heads


def check_trainable(base: Path, learner: LearnerConfig, *, gpu: bool, longest: int | None = None) -> None:
    """gpu: in bfloat16, else float32. longest: tokens of a prompt and its completion.

    Errors: UserError for a shape that cannot be counted, for what the learner does not compute, and for experts that
    are not trained, or not at this rank.
    """
    config = read_config(base)
    lora_parameters(config, learner.lora_rank, learner.target_modules)
    refuse_uncomputed(base, config, longest)
    of_experts = EXPERT_PROJECTIONS if num_experts(config) else ()
    kind = str(config.get("model_type"))
    refuse_unadapted(base, kind, [target for target in learner.target_modules if target not in of_experts])
    experts = num_experts(config) if {*learner.target_modules} & {*EXPERT_PROJECTIONS} else 0
    if experts and kind not in TRAINED_EXPERTS:
        raise UserError(
            f"{base.name}: experts of a mixture of type {kind!r} are not trained, those of {TRAINED_EXPERTS[0]} are;"
            f" train the attention alone (training.target_modules={','.join(ATTENTION)})"
        )
    if experts:
        refuse_unserved(base, config, learner.target_modules)
    check_rank(learner.lora_rank, learner.expert_rank, experts, 2 if gpu else 4)


def positions(base: Path) -> int | None:
    """The longest sequence that a model reads; null if its config.json does not say.

    YaRN and its like write the stretched number there, linear scaling the one before it; dynamic scaling too, but vLLM
    has no more positions than stand there.
    """
    config = read_config(base)
    scaling = rope_of(config)
    stretched = scaling.get("rope_type", scaling.get("type")) == "linear"
    known = config.get("max_position_embeddings")
    return known and int(known * (scaling.get("factor") or 1 if stretched else 1))


def check_positions(base: Path, max_model_len: int) -> None:
    """Errors: UserError if prompt and completion may be longer than the model has positions."""
    known = positions(base)
    if known and max_model_len > known:
        raise UserError(
            f"{base.name}: hardware.max_model_len is {max_model_len} and the model has {known} positions; lower it, and"
            " max_tokens with it"
        )


def attention_parameters(config: dict[str, Any]) -> int:
    """Weights of a decoder's attention, without norms."""
    heads, head, kv_heads = head_sizes(config)
    return size(config, "num_hidden_layers") * 2 * size(config, "hidden_size") * head * (heads + kv_heads)


def linear_parameters(config: dict[str, Any]) -> int:
    """Weights of a dense decoder's linear layers: what adapters are merged into."""
    mlp = 3 * size(config, "hidden_size") * inner_size(config)
    return attention_parameters(config) + size(config, "num_hidden_layers") * mlp


def merged_copies(config: dict[str, Any]) -> int:
    """Weights that a learner on merged weights holds twice. Not a mixture's experts: their base lies in host memory."""
    return attention_parameters(config) if num_experts(config) else linear_parameters(config)


def merging_bytes(config: dict[str, Any], bytes_per_value: int) -> int:
    """What merging takes of a sampler's GPU beside its weights: a second copy of them, or of a mixture, whose base lies
    in pinned host memory, two layers' experts on their way and one's worth of float32 copies."""
    if experts := num_experts(config):
        return 6 * experts * inner_size(config) * size(config, "hidden_size") * bytes_per_value
    return linear_parameters(config) * bytes_per_value


def check_host_memory(
    base: Path, available: int, bytes_per_value: int, copies: int = 1, checkpoints: int = 0, fewer: Sequence[str] = ()
) -> None:
    """copies: of the base of a mixture that adapters are merged into, one for each sampling engine, and for each
    process of the learner. checkpoints: bytes of those that may be written at once. fewer: settings that need fewer.
    Errors: UserError if they do not fit into host memory."""
    weights = loaded_bytes(base, bytes_per_value)
    if num_experts(read_config(base)) and copies * weights + checkpoints > 0.9 * available:
        several = f"{copies} copies" if copies > 1 else "a copy"
        beside = f", beside {checkpoints / GIB:.1f} of checkpoints on their way to the disk" if checkpoints else ""
        raise UserError(
            f"{base.name}: adapters of a mixture are merged from {several} in host memory of"
            f" {weights / GIB:.1f} GiB{' each' if copies > 1 else ''}{beside}, and {available / GIB:.1f} GiB are"
            f" free; set {', '.join([*fewer, 'hardware.adapters=unmerged'])}, or take a machine with more memory"
        )


def check_sampler_memory(
    base: Path,
    memory_fraction: float,
    gpus: int,
    total: int,
    bytes_per_value: int,
    *,
    kept: int = 0,
    slots: int = 0,
    graphs: int = 0,
    cache: int = 0,
) -> int:
    """Bytes of each GPU that the engine itself may take: its share of `total` without `kept`.

    kept: bytes that merging takes of each beside the engine. slots: of unmerged adapters, and graphs: of CUDA graphs on
    each, both of which vLLM counts as its own. cache: of one rollout.
    Errors: UserError if the share cannot hold its part of the weights, these, and 1 GiB to work with.
    """
    needed = loaded_bytes(base, bytes_per_value) / gpus + slots + kept + graphs + cache + GIB
    share = memory_fraction * total
    if needed > share:
        beside = f", {kept / GIB:.1f} of it to merge adapters" if kept else ""
        beside += f", {slots / GIB:.1f} of it adapters beside them" if slots else ""
        beside += f", {graphs / GIB:.1f} CUDA graphs" if graphs else ""
        beside += f", {cache / GIB:.1f} of it the cache of one rollout" if cache else ""
        less = ["hardware.adapters=unmerged"] if kept else []
        less += ["a smaller lora_rank"] if slots else []
        less += ["a smaller hardware.graphs_up_to"] if graphs else []
        less += ["a smaller hardware.max_model_len"] if cache else []
        raise UserError(
            f"{base.name}: sampling needs about {needed / GIB:.1f} GiB of each GPU{beside} and"
            f" hardware.memory_fraction={memory_fraction:g} of {total / GIB:.1f} GiB gives it {share / GIB:.1f}; raise"
            f" it or hardware.tensor_parallel, {''.join(f'set {option}, ' for option in less)}or take a larger GPU"
        )
    return int(share - kept)

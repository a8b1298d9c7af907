"""Memory that adapters take of a sampler, merged into the weights or in a slot of vLLM's beside them; and a rollout."""

from __future__ import annotations

from typing import Any

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import head_sizes, inner_size, merging_bytes, num_experts, size

#: What it can allocate slots for.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def slot_rank(lora_rank: int) -> int:
    """Of the smallest slot that holds an adapter. Errors: UserError for a rank that none does."""
    if lora_rank > _RANKS[-1]:
        raise UserError(f"LoRA rank {lora_rank}: vLLM serves at most {_RANKS[-1]}")
    return next(rank for rank in _RANKS if rank >= lora_rank)


def slot_parameters(config: dict[str, Any], rank: int, gpus: int) -> int:
    """Values of a slot on each of `gpus`, which has room for whatever vLLM could adapt.

    Of layers whose outputs are dealt out to the GPUs (queries, keys, values, gate and up) each holds a part of B and A
    whole; of those whose inputs are (output and down) it is the other way round; router, embedding and head lie whole
    on each, and a head of keys and values is held by several where there are fewer of them than GPUs.
    """
    hidden, inter, experts = size(config, "hidden_size"), inner_size(config), num_experts(config)
    heads, head, kv_heads = head_sizes(config)
    q, kv = heads * head // gpus, max(1, kv_heads // gpus) * head
    attention = 3 * hidden + q + 2 * kv + q + hidden
    mlp = 3 * (hidden + inter // gpus)
    layer = attention + (experts * mlp + hidden + experts if experts else mlp)
    return rank * (size(config, "num_hidden_layers") * layer + 2 * (size(config, "vocab_size") + hidden))


def adapter_bytes(config: dict[str, Any], hardware: Hardware, lora_rank: int, *, merges: bool) -> tuple[int, int]:
    """(what merging adapters takes of each GPU, what the slot beside the weights does). config: of the base model.
    lora_rank: of the adapters that are served; 0: none."""
    if not lora_rank:
        return 0, 0
    if merges:
        return merging_bytes(config, hardware.bytes_per_value), 0
    return 0, slot_parameters(config, slot_rank(lora_rank), hardware.tensor_parallel) * hardware.bytes_per_value


def cache_bytes(config: dict[str, Any], hardware: Hardware) -> int:
    """Keys and values of one rollout of `max_model_len` tokens on each GPU; without room for it vLLM does not start."""
    _, head, kv_heads = head_sizes(config)
    layer = 2 * max(1, kv_heads // hardware.tensor_parallel) * head * hardware.bytes_per_value
    return hardware.max_model_len * size(config, "num_hidden_layers") * layer

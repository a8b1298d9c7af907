"""Memory that adapters take of a sampler: merged into the weights, or in a slot of vLLM's beside them."""

from __future__ import annotations

from typing import Any

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import lora_parameters, merging_bytes

#: What it can allocate slots for.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def slot_rank(lora_rank: int) -> int:
    """Of the smallest slot that holds an adapter. Errors: UserError for a rank that none does."""
    if lora_rank > _RANKS[-1]:
        raise UserError(f"LoRA rank {lora_rank}: vLLM serves at most {_RANKS[-1]}")
    return next(rank for rank in _RANKS if rank >= lora_rank)


def adapter_bytes(config: dict[str, Any], hardware: Hardware, lora_rank: int, *, merges: bool) -> tuple[int, int]:
    """(what merging adapters takes of each GPU, the slot beside the weights over all GPUs, which has room for every
    linear layer). config: of the base model. lora_rank: of the adapters that are served; 0: none."""
    if merges:
        return merging_bytes(config, hardware.bytes_per_value), 0
    slot = lora_parameters(config, slot_rank(lora_rank)) if lora_rank else 0
    return 0, slot * hardware.bytes_per_value

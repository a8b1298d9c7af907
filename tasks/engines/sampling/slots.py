"""Room that vLLM keeps for an adapter beside the weights, where it is not merged into them."""

from __future__ import annotations

from typing import Any

from storage.errors import UserError
from tasks.engines.learning.memory_plan import lora_parameters

#: What it can allocate slots for.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def slot_rank(lora_rank: int) -> int:
    """Of the smallest slot that holds an adapter. Errors: UserError for a rank that none does."""
    if lora_rank > _RANKS[-1]:
        raise UserError(f"LoRA rank {lora_rank}: vLLM serves at most {_RANKS[-1]}")
    return next(rank for rank in _RANKS if rank >= lora_rank)


def slot_bytes(config: dict[str, Any], lora_rank: int, bytes_per_value: int) -> int:
    """Of the one that there is, over all GPUs; it has room for every linear layer. config: of the base model."""
    return lora_parameters(config, slot_rank(lora_rank)) * bytes_per_value if lora_rank else 0

"""What vLLM is started with, on a CPU and on a GPU; refused in a sentence before it loads anything.

vLLM pads a step to the next captured CUDA graph; above the largest it runs without, and 1,024 rollouts at once then
decode four times slower a token. A step's size is its tokens: one a decoding rollout, and those of the prompts that
are computed beside. So steps are kept small, and the graphs reach to the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from storage.errors import UserError
from tasks.domain.policies import KVCache
from tasks.engines.adapter_files import adapter_config
from tasks.engines.environment import keep_compiled
from tasks.engines.hardware import Hardware, check_fp8, check_gpus, visible_gpus
from tasks.engines.memory import check_host_memory, check_sampler_memory
from tasks.engines.model_files import read_config


def sampler_gpus(hardware: Hardware) -> list[str]:
    """Those that the engines' processes see; none: all of this one's. Errors: UserError where there are too few."""
    if not hardware.sampler_apart:
        return visible_gpus() if hardware.replicas > 1 else []
    check_gpus(hardware, len(gpus := visible_gpus()))
    return gpus[hardware.processes : hardware.gpus]


def check_parallel(model: Path, hardware: Hardware) -> None:
    """Errors: UserError for more GPUs an engine than the attention heads can be dealt out to."""
    heads = read_config(model).get("num_attention_heads", 0)
    if heads % hardware.tensor_parallel:
        raise UserError(
            f"hardware.tensor_parallel is {hardware.tensor_parallel}, and {model.name} has {heads} attention heads,"
            " which cannot be dealt out so; take a number that divides them"
        )


def on_cpu(hardware: Hardware) -> dict[str, Any]:
    """Errors: UserError for a cache that the memory has no room for."""
    if hardware.kv_cache_mb << 20 > (free := psutil.virtual_memory().available):
        raise UserError(f"hardware.kv_cache_mb is {hardware.kv_cache_mb} and {free >> 20} MB are free here; lower it")
    return {
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": hardware.kv_cache_mb << 20,
        # a prompt prefilled in chunks makes vLLM rewind a seeded generator, which CPU generators cannot do
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(2048, hardware.max_model_len, hardware.max_num_seqs),
    }


def on_gpu(model: Path, hardware: Hardware, merges: bool, lora_rank: int, kv_cache: KVCache = "full") -> dict[str, Any]:
    """lora_rank: of the adapters that are served; 0: none.

    Errors: UserError for what the GPU has no room for, or no arithmetic.
    """
    import torch

    if kv_cache == "fp8":
        check_fp8(torch.cuda.get_device_capability())

    keep_compiled(torch.cuda.get_device_name())
    total = torch.cuda.mem_get_info()[1]
    if merges:
        check_host_memory(model, psutil.virtual_memory().available, hardware.bytes_per_value)
    share = check_sampler_memory(model, hardware, lora_rank, total)
    return {
        "dtype": hardware.dtype,
        "kv_cache_dtype": "auto" if kv_cache == "full" else kv_cache,
        "gpu_memory_utilization": share / total,
        "max_num_batched_tokens": step_tokens(hardware),
        "compilation_config": {
            "cudagraph_capture_sizes": graph_sizes(hardware),
            # of GPUs that share an engine: its kernels are compiled at the first start, which took more than 4 minutes
            "pass_config": {"fuse_allreduce_rms": False},
        },
    }


def refuse_unread_ranks(adapter: Path, version: str) -> None:
    """Errors: UserError for an adapter with ranks by layer where vLLM would scale all of them by one."""
    from vllm.lora.peft_helper import PEFTHelper

    if adapter_config(adapter).get("rank_pattern") and not hasattr(PEFTHelper, "get_rank_and_scaling"):
        raise UserError(
            f"adapter {adapter}: its experts have a rank of their own, which vLLM {version} does not read beside the"
            " weights; set hardware.adapters=merged, or install a newer vLLM"
        )


#: (largest batch, step between sizes): little padding, and not a size more than that, for each takes time to capture.
_STEPS = ((64, 8), (256, 16), (512, 32), (1 << 30, 64))


def step_tokens(hardware: Hardware) -> int:
    """Tokens of a step at most: where every rollout decodes, as many again of prompts."""
    return max(512, 2 * hardware.max_num_seqs)


def graph_sizes(hardware: Hardware) -> list[int]:
    """Tokens of the steps that are captured, ascending, up to what the hardware asks for, that one always."""
    largest = min(step_tokens(hardware), hardware.graphs_up_to or step_tokens(hardware))
    sizes, size = {1, 2, 4, hardware.max_num_seqs, largest}, 0
    while (size := size + next(step for end, step in _STEPS if size < end)) < largest:
        sizes.add(size)
    return sorted(s for s in sizes if 0 < s <= largest)


def in_words(sizes: Sequence[int]) -> str:
    """Ascending sizes, as the log and `varband doctor` have them.

    >>> in_words([1, 2, 4, 8]), in_words([])
    ('steps of 1 to 8 tokens by CUDA graph, 4 sizes', 'no CUDA graphs')
    """
    return f"steps of 1 to {sizes[-1]} tokens by CUDA graph, {len(sizes)} sizes" if sizes else "no CUDA graphs"

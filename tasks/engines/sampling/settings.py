"""What vLLM is started with, on a CPU and on a GPU; refused in a sentence before it loads anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from storage.errors import UserError
from tasks.domain.policies import KVCache
from tasks.engines.adapter_files import adapter_config
from tasks.engines.environment import keep_compiled
from tasks.engines.hardware import Hardware, check_fp8, check_gpus
from tasks.engines.learning.memory_plan import check_host_memory, check_sampler_memory, read_config
from tasks.engines.sampling.graphs import graph_bytes, graph_sizes, step_tokens
from tasks.engines.sampling.slots import adapter_bytes, cache_bytes
from tasks.engines.visible_gpus import visible_gpus


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
    width = hardware.bytes_per_value
    config, graphs = read_config(model), graph_bytes(hardware)
    if merges:
        check_host_memory(model, psutil.virtual_memory().available, width)
    kept, slots = adapter_bytes(config, hardware, lora_rank, merges=merges)
    share = check_sampler_memory(
        model,
        hardware.memory_fraction,
        hardware.tensor_parallel,
        total,
        width,
        kept=kept,
        slots=slots,
        graphs=graphs,
        cache=cache_bytes(config, hardware),
    )
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

"""GPUs that share one sampling engine: as many as its model asks for. What is sampled stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.memory import check_sampler_memory
from tasks.engines.sampling.settings import check_parallel


def enough_gpus(hardware: Hardware, bases: Mapping[Path, int], gpus: int, gpu: int) -> Hardware:
    """With `tensor_parallel` as given, or where `spread` is asked for doubled until all bases fit: engines of one GPU
    give more tokens than one of several. bases: with the rank of the adapters that are served. gpus: that are here, of
    `gpu` bytes.

    As given where nothing is known of them, or no number is enough: then the memory plan says what is lacking.
    """
    if not hardware.spread or hardware.device == "cpu" or hardware.engine not in ("auto", "vllm") or not gpu:
        return hardware
    for more in (1, 2, 4, 8):
        tried = replace(hardware, tensor_parallel=hardware.tensor_parallel * more)
        if tried.gpus <= gpus and all(_fits(tried, base, rank, gpu) for base, rank in bases.items()):
            return tried
    return hardware


def _fits(hardware: Hardware, base: Path, rank: int, gpu: int) -> bool:
    try:
        check_parallel(base, hardware)
        check_sampler_memory(base, hardware, rank, gpu)
    except UserError:  # shown where the model is checked
        return False
    return True

"""Weights that lie in pinned host memory and are fetched one by one: the base of a mixture, which has no room beside
what was merged from it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ALIGNED = 512


def host_copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in host memory: of a GPU's weights in one pinned block, for torch's own pinned blocks are rounded up to
    powers of two."""
    import torch

    if not weights or not all(weight.is_cuda for weight in weights.values()):
        return {name: weight.clone() for name, weight in weights.items()}
    starts = [0]
    for weight in weights.values():
        starts.append(starts[-1] + -(-weight.nbytes // _ALIGNED) * _ALIGNED)
    block = _pinned_block(starts[-1])
    made = {}
    for (name, weight), (start, _) in zip(weights.items(), pairwise(starts), strict=True):
        made[name] = block[start : start + weight.nbytes].view(weight.dtype).view(weight.shape)
        made[name].copy_(weight, non_blocking=True)
    torch.cuda.synchronize()
    return made


class Snapshot:
    """The state of some tensors in host memory: of a GPU's in pinned memory, which the next one overwrites."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Until this is called again. On the calling thread's stream: whole once it returns."""
        import torch

        if not all(tensor.is_cuda for tensor in tensors.values()):
            return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
        if {n: t.shape for n, t in self._copies.items()} != {n: t.shape for n, t in tensors.items()}:
            self._copies = host_copies(tensors)
            return self._copies
        for name, tensor in tensors.items():
            self._copies[name].copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()
        return self._copies


def _pinned_block(size: int) -> Tensor:
    """Pinned until the last tensor over it is gone: the next training of this process pins its own."""
    import torch

    memory = np.empty(size, dtype=np.uint8)
    cuda: Any = torch.cuda.cudart()
    torch.cuda.check_error(int(cuda.cudaHostRegister(memory.ctypes.data, size, 0)))
    weakref.finalize(memory, cuda.cudaHostUnregister, memory.ctypes.data).atexit = False
    return torch.from_numpy(memory)


def fetched(base: Mapping[str, Tensor], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Each on the device; what lies elsewhere is on its way while the one before it is used."""
    import torch

    if device.type == "cpu" or all(weight.is_cuda for weight in base.values()):
        yield from base.items()
        return
    here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    waiting: tuple[str, Tensor, Any] | None = None
    for name, weight in [*base.items(), ("", None)]:
        coming = None
        if weight is not None:
            with torch.cuda.stream(beside):
                fetched = weight.to(device, non_blocking=True)
            fetched.record_stream(here)
            coming = name, fetched, beside.record_event()
        if waiting is not None:
            here.wait_event(waiting[2])
            yield waiting[:2]
            # else the whole base would be asked for at once, and need a place
            here.synchronize()
        waiting = coming

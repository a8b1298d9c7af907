"""Merge an adapter into its weights, W' = W + scale · B · A in the type of W, so that sampling with it costs no more
than with the base model.

bfloat16 has 8 bits of mantissa. At a learning rate of 5e-6, the value nearest to W + d is W for 99 % of weights, so
rounding to nearest would serve the base model. Rounding is therefore stochastic, with the exact sum as its expectation.
The noise of the rounding depends only on A and B, so that sampler and learner, each with its own copy, have the same
weights to the bit.
"""

import weakref
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engines.adapter_files import Products

#: Number of experts that are merged at once, because float32 copies of all experts of a layer take gigabytes.
_EXPERTS_AT_ONCE = 32


def merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return `weight` + scale · B · A, added in float32 and rounded to the weight's type; for one matrix or a stack. A
    and B are first rounded to that type, as in a learner of that type."""
    a, b = (matrix.detach().to(weight.device, weight.dtype) for matrix in (a, b))
    product = torch.addmm if weight.dim() == 2 else torch.baddbmm
    exact = product(weight.float(), b.float(), a.float(), alpha=scale)
    return rounded(exact, weight.dtype, _draws(a, b))


def merge_into(out: Tensor, weight: Tensor, products: Products, name: str) -> None:
    """Write the merged weight of this name into `out`, or the weight itself if it has no adapter."""
    if name not in products.pairs:
        out.copy_(weight)
        return
    a, b = products.pairs[name]
    if weight.dim() == 2:
        out.copy_(merged(weight, a, b, products.scale(name)))
        return
    pieces = (t.split(_EXPERTS_AT_ONCE) for t in (out, weight, a, b))
    for out_some, weight_some, a_some, b_some in zip(*pieces, strict=True):
        out_some.copy_(merged(weight_some, a_some, b_some, products.scale(name)))


def rounded(exact: Tensor, dtype: torch.dtype, draws: Any) -> Tensor:
    """Round float32 stochastically to bfloat16, without bias, and overwrite `exact`. Return float32 unchanged. draws: a
    torch.Generator of the same device."""
    if dtype == torch.float32:
        return exact
    if dtype != torch.bfloat16:
        raise ValueError(f"weights of type {dtype} cannot be merged")
    bits = exact.view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device, generator=draws)
    # NaN on a GPU is 0x7fffffff: added noise would overflow into the sign bit and give zeros
    noise.masked_fill_(exact.isnan(), 0)
    return bits.add_(noise).bitwise_and_(-(1 << 16)).view(torch.float32).to(torch.bfloat16)


def _draws(a: Tensor, b: Tensor) -> Any:
    """Return a random generator whose seed is a sum of the bits of A and B, weighted by position."""
    bits = torch.cat([matrix.flatten() for matrix in (a, b)]).view(torch.int16)
    places = torch.arange(1, len(bits) + 1, dtype=torch.int32, device=bits.device)
    return torch.Generator(a.device).manual_seed(int((bits * places).sum(dtype=torch.int64)) % (1 << 63))


_ALIGNED = 512


def host_copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in host memory. Copies of GPU weights share one pinned block, because torch rounds the size of each
    pinned block up to a power of two."""
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
    """A copy of tensors in host memory (pinned for a GPU). The next copy overwrites it."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return complete copies, made on the caller's stream. The copies are valid until the next call."""
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
    """Return a pinned block, which is unpinned when its last tensor is freed."""
    memory = np.empty(size, dtype=np.uint8)
    cuda: Any = torch.cuda.cudart()
    torch.cuda.check_error(int(cuda.cudaHostRegister(memory.ctypes.data, size, 0)))
    weakref.finalize(memory, cuda.cudaHostUnregister, memory.ctypes.data).atexit = False
    return torch.from_numpy(memory)


def fetched(base: Mapping[str, Tensor], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield each weight on the device. The next host weight is copied while a weight is in use."""
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
            # otherwise all weights would be copied at once and fill the memory
            here.synchronize()
        waiting = coming

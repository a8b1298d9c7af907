"""W' = W + scale · B · A in the type of W: an adapter served, and learned on, at the price of the base model.

bfloat16 has 8 bits of mantissa, and at a learning rate of 5e-6 the nearest value to W + d is W for 99 of 100 weights:
rounded to nearest, the base model would be served. So rounding is stochastic: up with the probability of the distance
to the value below. What is served is right in expectation; the noise is a function of A and B alone, so that sampler
and learner, each with its own copy, have the same weights to the bit.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engines.adapter_files import Products

#: Experts that are merged at once: float32 copies of all of a layer's would take gigabytes.
_EXPERTS_AT_ONCE = 32


def merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """`weight` + scale · B · A, added in float32 and rounded to the weight's type; of one matrix, or of many stacked.

    A and B are rounded to that type first, as a learner of that type multiplies them.
    """
    a, b = (matrix.detach().to(weight.device, weight.dtype) for matrix in (a, b))
    product = torch.addmm if weight.dim() == 2 else torch.baddbmm
    exact = product(weight.float(), b.float(), a.float(), alpha=scale)
    return rounded(exact, weight.dtype, _draws(a, b))


def merge_into(out: Tensor, weight: Tensor, products: Products, name: str) -> None:
    """`merged` of that name into `out`, whose memory stays; the weight itself where the adapter does not have it."""
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
    """Stochastic rounding of float32 to bfloat16, unbiased; float32 stays as it is. `exact` is overwritten.

    draws: torch.Generator of the same device.
    """
    if dtype == torch.float32:
        return exact
    if dtype != torch.bfloat16:
        raise ValueError(f"weights of type {dtype} are not merged")
    bits = exact.view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device, generator=draws)
    # a GPU's NaN is 0x7fffffff: noise would carry it into the sign, and serve zeros
    noise.masked_fill_(exact.isnan(), 0)
    return bits.add_(noise).bitwise_and_(-(1 << 16)).view(torch.float32).to(torch.bfloat16)


def _draws(a: Tensor, b: Tensor) -> Any:
    """A generator seeded with the bits of A and B, each weighted by its place."""
    bits = torch.cat([matrix.flatten() for matrix in (a, b)]).view(torch.int16)
    places = torch.arange(1, len(bits) + 1, dtype=torch.int32, device=bits.device)
    return torch.Generator(a.device).manual_seed(int((bits * places).sum(dtype=torch.int64)) % (1 << 63))


_ALIGNED = 512


def host_copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in host memory: of a GPU's weights in one pinned block, for torch's own pinned blocks are rounded up to
    powers of two."""
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
    memory = np.empty(size, dtype=np.uint8)
    cuda: Any = torch.cuda.cudart()
    torch.cuda.check_error(int(cuda.cudaHostRegister(memory.ctypes.data, size, 0)))
    weakref.finalize(memory, cuda.cudaHostUnregister, memory.ctypes.data).atexit = False
    return torch.from_numpy(memory)


def fetched(base: Mapping[str, Tensor], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Each on the device; what lies elsewhere is on its way while the one before it is used."""
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

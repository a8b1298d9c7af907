"""W' = W + scale · B · A in the type of W: an adapter served, and learned on, at the price of the base model.

bfloat16 has 8 bits of mantissa, and at a learning rate of 5e-6 the nearest value to W + d is W for 99 of 100 weights:
rounded to nearest, the base model would be served. So rounding is stochastic: up with the probability of the distance
to the value below. What is served is right in expectation; the noise is a function of A and B alone, so that sampler
and learner, each with its own copy, have the same weights to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import UserError
from tasks.engines.hardware import Hardware
from tasks.engines.learning.memory_plan import num_experts

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Products:
    """pairs: (A, B) of each adapted matrix by its name in the base model. scale: alpha / rank."""

    pairs: Mapping[str, tuple[Tensor, Tensor]]
    scale: float


def merges_adapters(config: dict[str, Any], hardware: Hardware) -> bool:
    """Whether adapters are merged into the weights. Errors: UserError where that is asked for and cannot be."""
    why = None
    if num_experts(config):
        why = "a mixture of experts"
    elif config.get("quantization_config"):
        why = "a quantised model"
    elif hardware.tensor_parallel > 1:
        why = "weights shared out over several GPUs"
    elif hardware.dtype == "float16":
        why = "float16 weights"
    if why and hardware.adapters == "merged":
        raise UserError(f"hardware.adapters=merged: adapters of {why} are served unmerged; set auto or unmerged")
    return why is None and hardware.adapters != "unmerged"


def read_products(folder: Path, device: str = "cpu") -> Products:
    """An adapter in PEFT format, on `device`. Errors: ValueError if it adapts anything but linear layers."""
    from safetensors.torch import load_file

    config = json.loads((folder / "adapter_config.json").read_text())
    stored = load_file(folder / "adapter_model.safetensors", device=device)
    tensors = {name.removeprefix(_PREFIX): tensor for name, tensor in stored.items()}
    names = [name.removesuffix(".lora_A.weight") for name in tensors if name.endswith(".lora_A.weight")]
    pairs = {n: (tensors[f"{n}.lora_A.weight"], tensors[f"{n}.lora_B.weight"]) for n in names}
    if 2 * len(pairs) != len(tensors):
        raise ValueError(f"{folder}: not an adapter of linear layers alone ({len(tensors)} matrices)")
    return Products(pairs, config["lora_alpha"] / config["r"])


def merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """`weight` + scale · B · A, added in float32 and rounded to the weight's type.

    A and B are rounded to that type first, as a learner of that type multiplies them.
    """
    import torch

    a, b = (matrix.detach().to(weight.device, weight.dtype) for matrix in (a, b))
    exact = torch.addmm(weight.float(), b.float(), a.float(), alpha=scale)
    return rounded(exact, weight.dtype, _draws(a, b))


def rounded(exact: Tensor, dtype: torch.dtype, draws: Any) -> Tensor:
    """Stochastic rounding of float32 to bfloat16, unbiased; float32 stays as it is. `exact` is overwritten.

    draws: torch.Generator of the same device.
    """
    import torch

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
    import torch

    bits = torch.cat([matrix.flatten() for matrix in (a, b)]).view(torch.int16)
    places = torch.arange(1, len(bits) + 1, dtype=torch.int32, device=bits.device)
    return torch.Generator(a.device).manual_seed(int((bits * places).sum(dtype=torch.int64)) % (1 << 63))

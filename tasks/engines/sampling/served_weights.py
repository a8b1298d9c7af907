"""The weights that vLLM samples with, and the base weights that adapters are merged into, in the model's process.

A dense model keeps a second copy of its base weights on the device. The base weights of a mixture would not fit on the
GPU: they are in pinned host memory, and each layer is copied while the previous one is merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tasks.engines.adapter_files import Products, read_served
from tasks.engines.learning.merging import fetched, host_copies, merge_into
from tasks.engines.model_files import weight_files

Base = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter of the served model, with the names and row numbers of the matrices stacked in it."""

    module: Any
    attribute: str
    parts: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def weight(self) -> Tensor:
        return getattr(self.module, self.attribute)


def places(model: Any) -> dict[str, Place]:
    """Return the linear layers of the decoder, and the two expert weights of each mixture layer."""
    from vllm.model_executor.layers.linear import LinearBase

    stacked = getattr(model, "packed_modules_mapping", {})
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, LinearBase):
            parent, _, leaf = name.rpartition(".")
            parts = tuple(f"{parent}.{part}" for part in stacked.get(leaf, [leaf]))
            rows: Any = module.output_sizes if len(parts) > 1 else [module.output_size]
            found[name] = Place(module, "weight", parts, tuple(rows))
        elif _holds_experts(module):
            layer, inner = module.layer_name, module.w13_weight.shape[1] // 2
            both = (f"{layer}.gate_proj", f"{layer}.up_proj")
            found[f"{name}.w13"] = Place(module, "w13_weight", both, (inner, inner))
            found[f"{name}.w2"] = Place(module, "w2_weight", (f"{layer}.down_proj",), (module.w2_weight.shape[1],))
    return found


def mergeable(model: Any) -> bool:
    """Return whether all weights are plain: not quantised, sharded, or rearranged for a kernel."""
    found = places(model)
    return bool(found) and all(map(_plain, found.values()))


def _holds_experts(module: Any) -> bool:
    return hasattr(module, "w13_weight") and hasattr(module, "w2_weight")


def _plain(place: Place) -> bool:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    method = place.module.quant_method
    if place.attribute == "weight":
        return getattr(place.module, "tp_size", 1) == 1 and type(method) is UnquantizedLinearMethod
    shared_out = place.module.moe_config.moe_parallel_config
    backend = getattr(method, "unquantized_backend", None)
    return shared_out.tp_size == 1 and not shared_out.use_ep and backend is not None and backend.name == "TRITON"


def base_weights(model: Any, folder: Path) -> Base:
    """Return copies of the weights. On a CPU vLLM repacks the weights, so the weight files are read again."""
    found = places(model)
    if all(place.weight.is_cuda for place in found.values()):
        weights = {name: place.weight.detach() for name, place in found.items()}
        if any(_holds_experts(place.module) for place in found.values()):
            return host_copies(weights)
        return {name: weight.clone() for name, weight in weights.items()}
    tensors = {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}
    return {
        name: torch.cat([tensors[f"{part}.weight"] for part in place.parts]).to(place.weight.dtype)
        for name, place in found.items()
    } | {f"{name}/packed": place.module.cpu_linear for name, place in found.items()}


def serve(model: Any, base: Base, folder: str | None) -> None:
    """Use base + adapter for all later forward passes; None restores the base bit for bit."""
    found = places(model)
    device = next(iter(found.values())).weight.device
    products = read_served(Path(folder), str(device)) if folder else Products({}, 0.0)
    if unknown := sorted(set(products.pairs) - {part for place in found.values() for part in place.parts}):
        raise ValueError(f"{folder}: adapts {unknown[0]}, which the served model does not have")
    if device.type == "cpu":
        _serve_on_cpu(found, base, products)
        return
    for name, weight in fetched(base, device):
        # in place, because CUDA graphs store the address
        _merge(found[name].weight.data, weight, found[name], products)


def _merge(into: Tensor, weight: Tensor, place: Place, products: Products) -> None:
    outs, blocks = (tensor.split(place.rows, dim=-2) for tensor in (into, weight))
    for out, block, part in zip(outs, blocks, place.parts, strict=True):
        merge_into(out, block, products, part)


def _serve_on_cpu(found: Mapping[str, Place], base: Base, products: Products) -> None:
    for name, place in found.items():
        module = place.module
        if any(part in products.pairs for part in place.parts):
            _merge(new := base[name].clone(), base[name], place, products)
            module.weight = torch.nn.Parameter(new, requires_grad=False)
            module.quant_method.process_weights_after_loading(module)
        else:
            module.cpu_linear = base[f"{name}/packed"]

"""Frozen linear layers with LoRA: the product beside the base weight's, or in the weight; an MLP of such layers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tasks.engines.learning.merging import merged

if TYPE_CHECKING:
    from torch import Tensor, nn


def add_gradients(layer: Any, x: Tensor, grad: Tensor) -> None:
    """Of A and B where the layer's output has `grad`, as if the merged weight were not rounded; straight into what
    they are summed in."""
    layer.a.grad.addmm_((grad @ layer.b).T, x, alpha=layer.scale)
    layer.b.grad.addmm_(grad.T, x @ layer.a.T, alpha=layer.scale)


@cache
def _merged() -> Any:
    import torch

    class MergedLinear(torch.autograd.Function):
        """x W'ᵀ + b where W' holds scale · B · A already; gradients of A and B as if it were not rounded."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, layer: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x, layer.weight, a, b)
            ctx.layer = layer
            return torch.nn.functional.linear(x, layer.weight, layer.bias)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            x, weight, a, b = ctx.saved_tensors
            (grad,), scale = grads, ctx.layer.scale
            grad_x, grad_a, grad_b = grad @ weight if ctx.needs_input_grad[0] else None, None, None
            # launches of small kernels bound a step on a GPU; on a CPU another order of sums would change last bits
            if x.is_cuda:
                add_gradients(ctx.layer, x, grad)
            else:
                grad_a = ((grad @ b) * scale).T @ x
                grad_b = (grad.T @ (x @ a.T)) * scale
            return grad_x, None, grad_a, grad_b

    return MergedLinear


@cache
def _beside() -> Any:
    import torch

    class LoraLinear(torch.autograd.Function):
        """x Wᵀ + b + scale · (x Aᵀ) Bᵀ; the second product is accumulated into the first, in both directions."""

        @staticmethod
        def forward(
            ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
        ) -> Tensor:
            inner = x @ a.T
            out = torch.nn.functional.linear(x, weight, bias)
            out.addmm_(inner, b.T, alpha=scale)
            ctx.save_for_backward(x, inner, weight, a, b)
            ctx.scale = scale
            return out

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            x, inner, weight, a, b = ctx.saved_tensors
            grad = grads[0]
            grad_inner = (grad @ b) * ctx.scale
            grad_b = (grad.T @ inner) * ctx.scale
            grad_a = grad_inner.T @ x
            grad_x = None
            if ctx.needs_input_grad[0]:
                grad_x = grad @ weight
                grad_x.addmm_(grad_inner, a)
            return grad_x, None, None, grad_a, grad_b, None

    return LoraLinear


@cache
def _merged_mlp() -> Any:
    import torch

    class MergedMlp(torch.autograd.Function):
        """down(silu(gate(x)) · up(x)) of three merged layers. Between gate and down nothing is kept: the backward pass
        makes the product again from its factors, in the kernel that makes their gradients."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, layers: tuple[Any, Any, Any], kernels: Any, *_lora: Tensor) -> Tensor:
            gate, up = (torch.nn.functional.linear(x, layer.weight, layer.bias) for layer in layers[:2])
            ctx.save_for_backward(x, gate, up)
            ctx.layers, ctx.kernels = layers, kernels
            return torch.nn.functional.linear(kernels.forward(gate, up), layers[2].weight, layers[2].bias)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            (x, gate, up), layers = ctx.saved_tensors, ctx.layers
            inner, grad_gate, grad_up = ctx.kernels.backward(grads[0] @ layers[2].weight, gate, up)
            for layer, seen, grad in zip(layers, (x, x, inner), (grad_gate, grad_up, grads[0]), strict=True):
                add_gradients(layer, seen, grad)
            grad_x = None
            if ctx.needs_input_grad[0]:
                grad_x = grad_gate @ layers[0].weight
                grad_x.addmm_(grad_up, layers[1].weight)
            return grad_x, *(None for _ in range(8))

    return MergedMlp


def merged_mlp(x: Tensor, layers: tuple[Any, Any, Any], kernels: Any) -> Tensor:
    """x through merged gate, up and down. kernels: `forward(gate, up)`, their gated product, and `backward(grad, gate,
    up)`, that product and the gradients of both."""
    lora = [matrix for layer in layers for matrix in (layer.a, layer.b)]
    return _merged_mlp().apply(x.flatten(0, -2), layers, kernels, *lora).view(x.shape)


def lora_module(linear: nn.Linear, a: Tensor, b: Tensor, scale: float, *, merge: bool) -> Any:
    """`linear` with A and B. merge: its weight is a copy that holds them, from each call of `merge` on."""
    from torch import nn

    class LoraModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.bias, self.scale, self.merged = linear.weight, linear.bias, scale, merge
            self.weight = nn.Parameter(linear.weight.clone(), requires_grad=False) if merge else linear.weight
            self.a, self.b = nn.Parameter(a), nn.Parameter(b)

        def merge(self) -> None:
            self.weight.data.copy_(merged(self.base, self.a, self.b, scale))

        def forward(self, x: Tensor) -> Tensor:
            rows = x.flatten(0, -2)
            out = (
                _merged().apply(rows, self, self.a, self.b)
                if merge
                else _beside().apply(rows, self.weight, self.bias, self.a, self.b, scale)
            )
            return out.view(*x.shape[:-1], -1)

    return LoraModule()

"""A frozen linear layer with LoRA: its product beside the base weight's, or in the weight."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tasks.engines.learning.merging import merged

if TYPE_CHECKING:
    from torch import Tensor, nn


@cache
def _merged() -> Any:
    import torch

    class MergedLinear(torch.autograd.Function):
        """x W'ᵀ + b where W' holds scale · B · A already; gradients of A and B as if it were not rounded."""

        @staticmethod
        def forward(
            ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
        ) -> Tensor:
            ctx.save_for_backward(x, weight, a, b)
            ctx.scale = scale
            return torch.nn.functional.linear(x, weight, bias)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            x, weight, a, b = ctx.saved_tensors
            grad = grads[0]
            grad_a = ((grad @ b) * ctx.scale).T @ x
            grad_b = (grad.T @ (x @ a.T)) * ctx.scale
            return grad @ weight if ctx.needs_input_grad[0] else None, None, None, grad_a, grad_b, None

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


def lora_module(linear: nn.Linear, a: Tensor, b: Tensor, scale: float, *, merge: bool) -> Any:
    from torch import nn

    apply = (_merged() if merge else _beside()).apply

    class LoraModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.bias = linear.weight, linear.bias
            self.weight = nn.Parameter(linear.weight.clone(), requires_grad=False) if merge else linear.weight
            self.a, self.b = nn.Parameter(a), nn.Parameter(b)

        def merge(self) -> None:
            self.weight.data.copy_(merged(self.base, self.a, self.b, scale))

        def forward(self, x: Tensor) -> Tensor:
            out = apply(x.flatten(0, -2), self.weight, self.bias, self.a, self.b, scale)
            return out.view(*x.shape[:-1], -1)

    return LoraModule()

"""The GPU's fused layers, in float64 on the CPU, against the layers that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tasks.engines.learning.lora import Kernels, LoraModule, gated, gated_backward, merged_mlp

KERNELS = Kernels(gated, gated_backward)


def layers(draw: torch.Generator) -> tuple[Any, Any, Any]:
    made = []
    for width_in, width_out in ((6, 10), (6, 10), (10, 6)):
        linear = nn.Linear(width_in, width_out, bias=False).requires_grad_(False)
        linear.weight.copy_(torch.randn(width_out, width_in, generator=draw))
        a, b = torch.randn(3, width_in, generator=draw), torch.randn(width_out, 3, generator=draw)
        module = LoraModule(linear, a, b, 0.5, merge=True)
        module.merge()
        module.a.grad, module.b.grad = torch.zeros_like(a), torch.zeros_like(b)
        made.append(module)
    return made[0], made[1], made[2]


def gradients(of: tuple[Any, Any, Any], x: Tensor) -> list[Tensor]:
    assert x.grad is not None
    return [x.grad, *(m.grad for layer in of for m in (layer.a, layer.b))]


def test_gated_backward_is_the_gradient_of_gated() -> None:
    draw = torch.Generator().manual_seed(0)
    gate, up, grad = (torch.randn(50, 8, generator=draw, requires_grad=True) for _ in range(3))
    expected = torch.autograd.grad(gated(gate, up), (gate, up), grad)
    product, *found = gated_backward(grad, gate, up)
    assert torch.equal(product, gated(gate, up))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("backward_passes", [1, 3])
def test_a_merged_mlp_is_its_three_merged_layers(backward_passes: int) -> None:
    """Also what several packs add up, and that an input without a gradient gets none."""
    draw = torch.Generator().manual_seed(1)
    fused, apart = layers(torch.Generator().manual_seed(2)), layers(torch.Generator().manual_seed(2))
    x_fused = torch.randn(1, 20, 6, generator=draw).requires_grad_()
    x_apart = x_fused.detach().clone().requires_grad_()
    slope = torch.randn(1, 20, 6, generator=draw)
    for _ in range(backward_passes):
        out = merged_mlp(x_fused, fused, KERNELS)
        gate, up, down = apart
        expected = down(gated(gate(x_apart), up(x_apart)))
        assert torch.allclose(out, expected)
        (out * slope).sum().backward()
        (expected * slope).sum().backward()
    for one, other in zip(gradients(fused, x_fused), gradients(apart, x_apart), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)
    frozen = x_fused.detach()
    merged_mlp(frozen, fused, KERNELS).sum().backward()
    assert frozen.grad is None

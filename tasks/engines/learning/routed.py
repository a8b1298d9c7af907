"""A layer of experts with LoRA, one function with a gradient of its own: a row is a token at one of its K experts.

Letters: T tokens, K experts a token, R = T·K rows sorted by expert, E experts, D hidden, I inner, r rank. What a layer
keeps for the backward pass is its input, gate and up: rows and the products of down are made again, or not needed:
with G = W2ᵀ dy a row's gradient is w·G inside and its weight's is G · inner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

#: (A: E x r x columns, B: E x rows x r) of a projection.
Pair = tuple["Tensor", "Tensor"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """gate_up: E x 2I x D, down: E x D x I; scale: alpha / rank."""

    gate_up: Tensor
    down: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Routes:
    """order_R: places in T x K by expert; back_TK: the row of each place; ends_E: int32, where an expert's end."""

    order_R: Tensor
    back_TK: Tensor
    token_R: Tensor
    ends_E: Tensor


def routes(experts_TK: Tensor, experts: int) -> Routes:
    import torch

    expert_R, order_R = experts_TK.flatten().sort(stable=True)
    back = torch.empty_like(order_R)
    back[order_R] = torch.arange(len(order_R), device=order_R.device)
    ends_E = torch.searchsorted(expert_R, torch.arange(experts, device=order_R.device), right=True).int()
    return Routes(order_R, back.view(experts_TK.shape), order_R // experts_TK.shape[1], ends_E)


def grouped(x_RI: Tensor, weights_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """x · Wᵀ, each row with its expert's weight."""
    from torch.nn.functional import grouped_mm

    return grouped_mm(x_RI, weights_EOI.transpose(-2, -1), offs=ends_E)


def through(x_RO: Tensor, weights_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """x · W, as `grouped` backwards."""
    from torch.nn.functional import grouped_mm

    return grouped_mm(x_RO, weights_EOI, offs=ends_E)


def outer(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor) -> Tensor:
    """leftᵀ · right over the rows of each expert: E x M x N."""
    from torch.nn.functional import grouped_mm

    return grouped_mm(left_RM.T, right_RN, offs=ends_E)


def _gated(gate_up: Tensor) -> Tensor:
    import torch

    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _gated_backward(grad_RI: Tensor, gate_up: Tensor, weight_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(inner, gradient of gate and up, that of the row's weight); grad: of inner, without the weight."""
    import torch

    wide = torch.promote_types(gate_up.dtype, torch.float32)
    gate, up = (half.to(wide) for half in gate_up.chunk(2, dim=-1))
    sigmoid = torch.sigmoid(gate)
    silu, grad = gate * sigmoid, grad_RI.to(wide)
    inner, weighed = silu * up, grad * weight_R[:, None].to(wide)
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    both = torch.cat([weighed * up * slope, weighed * silu], dim=-1).to(gate_up.dtype)
    return inner.to(gate_up.dtype), both, (grad * inner).sum(-1)


def _summed(rows_RD: Tensor, back_TK: Tensor, weights_TK: Tensor | None) -> Tensor:
    """Back in the order of tokens, then a sum of fixed order: an index_add would not repeat its bits on a GPU. Written
    out over K: compiled as a reduction over so few it takes seven times what its bytes do."""
    import torch

    wide = torch.promote_types(rows_RD.dtype, torch.float32)
    total = None
    for k in range(back_TK.shape[1]):
        place = rows_RD[back_TK[:, k]].to(wide)
        place = place if weights_TK is None else place * weights_TK[:, k, None]
        total = place if total is None else total + place
    assert total is not None
    return total.to(rows_RD.dtype)


@cache
def kernels(*, gpu: bool) -> tuple[Any, Any, Any]:
    """(gated product, its backward pass, sum over a token's experts)."""
    import torch

    if not gpu:
        return _gated, _gated_backward, _summed
    from tasks.engines.learning.gated_kernel import gated_backward

    return torch.compile(_gated, dynamic=True), gated_backward, torch.compile(_summed, dynamic=True)


def _plus(out: Tensor, inner_Rr: Tensor | None, b: Tensor, ends_E: Tensor, scale: float) -> Tensor:
    return out if inner_Rr is None else out.add_(grouped(inner_Rr, b, ends_E), alpha=scale)


@cache
def routed() -> Any:
    import torch

    class Routed(torch.autograd.Function):
        """y_TD of x_TD; `names` of the projections that have LoRA, their A and B follow one by one."""

        @staticmethod
        def forward(
            ctx: Any, x: Tensor, weights_TK: Tensor, at: Routes, base: Frozen, names: tuple[str, ...], *matrices: Tensor
        ) -> Tensor:
            pairs = pairs_of(names, matrices)
            gated, _, summed = kernels(gpu=x.is_cuda)
            ends, scale = at.ends_E, base.scale
            rows = x[at.token_R]
            low = {name: grouped(rows, pairs[name][0], ends) for name in names if name != "down_proj"}
            gate_up = grouped(rows, base.gate_up, ends)
            for name, half in zip(("gate_proj", "up_proj"), gate_up.chunk(2, dim=-1), strict=True):
                if name in pairs:
                    _plus(half, low[name], pairs[name][1], ends, scale)
            inner = gated(gate_up)
            out = grouped(inner, base.down, ends)
            if "down_proj" in pairs:
                low["down_proj"] = grouped(inner, pairs["down_proj"][0], ends)
                _plus(out, low["down_proj"], pairs["down_proj"][1], ends, scale)
            ctx.save_for_backward(x, weights_TK, gate_up, *(low[name] for name in names), *matrices)
            ctx.at, ctx.base, ctx.names = at, base, names
            return summed(out, at.back_TK, weights_TK)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            at, base, names = ctx.at, ctx.base, ctx.names
            x, weights_TK, gate_up, *rest = ctx.saved_tensors
            low, pairs = dict(zip(names, rest, strict=False)), pairs_of(names, rest[len(names) :])
            _, gated_backward, summed = kernels(gpu=x.is_cuda)
            ends, scale = at.ends_E, base.scale
            weight_R = weights_TK.flatten()[at.order_R]
            found: dict[str, Pair] = {}
            grad_out = grads[0][at.token_R]
            grad_inner, grad_low = through(grad_out, base.down, ends), None
            if "down_proj" in pairs:
                a, b = pairs["down_proj"]
                grad_low = through(grad_out, b, ends)
                grad_inner.add_(through(grad_low, a, ends), alpha=scale)
            inner, grad_gate_up, grad_weight = gated_backward(grad_inner, gate_up, weight_R)
            if grad_low is not None:
                by_weight = (weight_R * scale)[:, None].to(x.dtype)
                found["down_proj"] = (
                    outer(grad_low * by_weight, inner, ends),
                    outer(grad_out, low["down_proj"] * by_weight, ends),
                )
            rows = x[at.token_R]
            grad_rows = through(grad_gate_up, base.gate_up, ends)
            for name, grad in zip(("gate_proj", "up_proj"), grad_gate_up.chunk(2, dim=-1), strict=True):
                if name in pairs:
                    a, b = pairs[name]
                    grad_low = through(grad, b, ends).mul_(scale)
                    grad_rows.add_(through(grad_low, a, ends))
                    found[name] = (outer(grad_low, rows, ends), outer(grad, low[name] * scale, ends))
            grad_x = summed(grad_rows, at.back_TK, None)
            grad_weights = grad_weight[at.back_TK].to(weights_TK.dtype)
            return grad_x, grad_weights, None, None, None, *(m for name in names for m in found[name])

    return Routed


def pairs_of(names: tuple[str, ...], matrices: Any) -> Mapping[str, Pair]:
    return {name: (matrices[2 * i], matrices[2 * i + 1]) for i, name in enumerate(names)}

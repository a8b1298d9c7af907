"""A layer of experts whose weights hold their LoRA: the forward pass is the base model's, and what the backward pass
needs of LoRA is made again from the rows that are there anyhow.

Against `routed`, which multiplies by A and B beside the base: no addition to an output in either direction, and gate
and up, whose rows are the same, are multiplied by both their A at once. Letters as there; H: projections of gate and up
that have LoRA.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tasks.engines.learning.routed import Frozen, Pair, Routes, grouped, kernels, outer, pairs_of, through

if TYPE_CHECKING:
    from torch import Tensor


@cache
def routed_merged() -> Any:
    import torch

    class RoutedMerged(torch.autograd.Function):
        """As `routed`; `weights` hold the adapter."""

        @staticmethod
        def forward(
            ctx: Any,
            x: Tensor,
            weights_TK: Tensor,
            at: Routes,
            weights: Frozen,
            names: tuple[str, ...],
            *matrices: Tensor,
        ) -> Tensor:
            gated, _, summed = kernels(gpu=x.is_cuda)
            gate_up = grouped(x[at.token_R], weights.gate_up, at.ends_E)
            out = grouped(gated(gate_up), weights.down, at.ends_E)
            ctx.save_for_backward(x, weights_TK, gate_up, *matrices)
            ctx.at, ctx.weights, ctx.names = at, weights, names
            return summed(out, at.back_TK, weights_TK)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            at, weights, names = ctx.at, ctx.weights, ctx.names
            x, weights_TK, gate_up, *matrices = ctx.saved_tensors
            pairs, ends, scale = pairs_of(names, matrices), at.ends_E, weights.scale
            _, gated_backward, summed = kernels(gpu=x.is_cuda)
            weight_R = weights_TK.flatten()[at.order_R]
            found: dict[str, Pair] = {}
            grad_out = grads[0][at.token_R]
            inner, grad_gate_up, grad_weight = gated_backward(through(grad_out, weights.down, ends), gate_up, weight_R)
            if "down_proj" in pairs:
                a, b = pairs["down_proj"]
                by_weight = (weight_R * scale)[:, None].to(x.dtype)
                found["down_proj"] = (
                    outer(through(grad_out, b, ends).mul_(by_weight), inner, ends),
                    outer(grad_out, grouped(inner, a, ends).mul_(by_weight), ends),
                )
            grad_x = summed(through(grad_gate_up, weights.gate_up, ends), at.back_TK, None)
            halves = dict(zip(("gate_proj", "up_proj"), grad_gate_up.chunk(2, dim=-1), strict=True))
            halves = {name: half for name, half in halves.items() if name in pairs}
            if halves:
                rows, rank = x[at.token_R], pairs[next(iter(halves))][0].shape[1]
                low_RHr = grouped(rows, torch.cat([pairs[name][0] for name in halves], dim=1), ends).mul_(scale)
                backs = [through(half, pairs[name][1], ends) for name, half in halves.items()]
                grads_a = outer(torch.cat(backs, dim=-1).mul_(scale), rows, ends)
                each = zip(halves.items(), grads_a.split(rank, dim=1), low_RHr.split(rank, dim=-1), strict=True)
                for (name, half), grad_a, low in each:
                    found[name] = (grad_a, outer(half, low, ends))
            grad_weights = grad_weight[at.back_TK].to(weights_TK.dtype)
            return grad_x, grad_weights, None, None, None, *(m for name in names for m in found[name])

    return RoutedMerged

"""Attention over packs: the queries of each segment attend to the key rows that the pack lists for the segment.

The GPU uses one variable-length kernel, and the CPU one call per segment. Both align the last query with the last key,
so that a completion attends to its group's prompt and to its own past.
"""

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from storage.errors import UserError
from tasks.domain.grpo.packing import Pack
from tasks.engines.hardware import on_device

#: The name under which transformers finds this attention.
ATTENTION_NAME = "varband_packed"


@dataclass(frozen=True, slots=True)
class Layout:
    """The index tensors of a pack's attention on the device, and the lengths of its longest segment."""

    starts_q: Tensor
    starts_k: Tensor
    longest_q: int
    longest_k: int
    key_rows: Tensor


def layout(pack: Pack, device: torch.device) -> Layout:
    starts_q, starts_k, key_rows = (on_device(a, device) for a in (pack.starts_q, pack.starts_k, pack.key_rows))
    longest_q, longest_k = (int(np.diff(starts).max()) for starts in (pack.starts_q, pack.starts_k))
    return Layout(starts_q, starts_k, longest_q, longest_k, key_rows)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None = None,
    *,
    scaling: float,
    layout: Layout | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Implement transformers' attention interface: query 1xHxTxD, key and value 1xKxTxD → 1xTxHxD. The model's own mask
    is ignored. softcap and s_aux raise an error here; sliding windows do so when the model is checked."""
    if layout is None:
        raise UserError(
            f"{type(module).__name__}: the model does not tell its attention which rows belong to one rollout"
        )
    if softcap or s_aux is not None:
        raise UserError(f"{type(module).__name__}: its attention has caps or sinks, which the learner does not support")
    q = query[0].transpose(0, 1)
    k, v = (GatherRows.apply(x[0].transpose(0, 1), layout.key_rows) for x in (key, value))
    attend = _variable_length if q.is_cuda else _by_segment
    return attend(q, k, v, scaling, layout)[None], None


def _variable_length(q: Tensor, k: Tensor, v: Tensor, scaling: float, at: Layout) -> Tensor:
    options: dict[str, Any] = {} if math.isclose(scaling, q.shape[-1] ** -0.5) else {"scale": scaling}
    # if query heads share a key head, torch 2.12 and later need this flag
    if "enable_gqa" in signature(varlen_attn).parameters:
        options["enable_gqa"] = True
    return varlen_attn(
        q.contiguous(), k, v, at.starts_q, at.starts_k, at.longest_q, at.longest_k, window_size=(-1, 0), **options
    )  # type: ignore[return-value]


def _by_segment(q: Tensor, k: Tensor, v: Tensor, scaling: float, at: Layout) -> Tensor:
    segments = (
        x.transpose(0, 1)[None].split(starts.diff().tolist(), dim=2)
        for x, starts in ((q, at.starts_q), (k, at.starts_k), (v, at.starts_k))
    )
    outs = []
    for one in zip(*segments, strict=True):
        mask: Any = causal_lower_right(one[0].shape[2], one[1].shape[2])
        out = scaled_dot_product_attention(*one, attn_mask=mask, scale=scaling, enable_gqa=True)
        outs.append(out[0].transpose(0, 1))
    return torch.cat(outs)


class GatherRows(torch.autograd.Function):
    """Select rows by index. The backward pass sums in float32, because a whole group reads the prompt's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        total = torch.zeros(ctx.shape, dtype=torch.float32, device=grads[0].device)
        return total.index_add_(0, rows, grads[0].float()).to(grads[0].dtype), None


def register() -> None:
    """Register the attention with transformers, which then builds no mask."""
    AttentionInterface.register(ATTENTION_NAME, torch.compiler.disable(packed_attention))

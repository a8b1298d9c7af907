"""Attention over packs: each segment's queries attend to the key rows that the pack lists for it.

The GPU uses one variable-length kernel, the CPU padded SDPA in buckets of segments of similar length. Both
implementations align the last query with the last key, so that a completion attends to its group's prompt and its own
past.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from storage.errors import UserError
from tasks.domain.grpo.packing import Pack
from tasks.engines.hardware import on_device

#: The name under which models find this attention.
ATTENTION_NAME = "varband_packed"
_BUCKET = 16


@dataclass(frozen=True, slots=True)
class Bucket:
    """Segments padded to one length: indices of their query rows (NxQ) and key rows (NxK), and the mask of allowed
    pairs (Nx1xQxK)."""

    query_rows: Tensor
    key_rows: Tensor
    allowed: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """The index tensors of a pack's attention on the device. `buckets`, `order`: used without the variable-length
    kernel; row t of the pack is row order[t] of the buckets' flattened outputs."""

    starts_q: Tensor
    starts_k: Tensor
    longest_q: int
    longest_k: int
    key_rows: Tensor
    buckets: tuple[Bucket, ...] = ()
    order: Tensor | None = None


def layout(pack: Pack, device: torch.device) -> Layout:
    lengths_q, lengths_k = np.diff(pack.starts_q), np.diff(pack.starts_k)
    buckets, order = ((), None) if device.type == "cuda" else _buckets(pack, lengths_q, lengths_k)
    return Layout(
        starts_q=on_device(pack.starts_q, device),
        starts_k=on_device(pack.starts_k, device),
        longest_q=int(lengths_q.max()),
        longest_k=int(lengths_k.max()),
        key_rows=on_device(pack.key_rows, device),
        buckets=buckets,
        order=order,
    )


def _buckets(pack: Pack, lengths_q: np.ndarray, lengths_k: np.ndarray) -> tuple[tuple[Bucket, ...], Tensor]:
    buckets, order, flat = [], np.empty(len(pack.tokens_T), dtype=np.int64), 0
    by_length = np.lexsort((lengths_k, lengths_q))
    for start in range(0, len(by_length), _BUCKET):
        members = by_length[start : start + _BUCKET]
        num_q, num_k = int(lengths_q[members].max()), int(lengths_k[members].max())
        query_rows = np.zeros((len(members), num_q), dtype=np.int64)
        key_rows = np.zeros((len(members), num_k), dtype=np.int64)
        for n, segment in enumerate(members):
            first, len_q, len_k = pack.starts_q[segment], lengths_q[segment], lengths_k[segment]
            rows = np.arange(first, first + len_q)
            query_rows[n, :len_q] = rows
            key_rows[n, :len_k] = pack.key_rows[pack.starts_k[segment] : pack.starts_k[segment + 1]]
            order[rows] = flat + n * num_q + np.arange(len_q)
        last_seen = np.arange(num_q)[None, :, None] + (lengths_k - lengths_q)[members][:, None, None]
        # a padded query attends like the last real one, so that no row of the mask is empty
        allowed = np.arange(num_k)[None, None, :] <= np.minimum(last_seen, lengths_k[members][:, None, None] - 1)
        buckets.append(Bucket(*(torch.from_numpy(a) for a in (query_rows, key_rows, allowed[:, None]))))
        flat += len(members) * num_q
    return tuple(buckets), torch.from_numpy(order)


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
    is ignored; softcap and s_aux are refused here, sliding windows when the model is checked."""
    if layout is None:
        raise UserError(
            f"{type(module).__name__}: the model does not tell its attention which rows belong to one rollout"
        )
    if softcap or s_aux is not None:
        raise UserError(f"{type(module).__name__}: its attention has caps or sinks, which the learner does not compute")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if layout.order is None:
        return _variable_length(q, k, v, scaling, layout)[None], None
    return _padded(q, k, v, scaling, layout)[None], None


def _variable_length(q: Tensor, k: Tensor, v: Tensor, scaling: float, at: Layout) -> Tensor:
    k, v = (GatherRows.apply(x, at.key_rows) for x in (k, v))
    options: dict[str, Any] = {} if math.isclose(scaling, q.shape[-1] ** -0.5) else {"scale": scaling}
    # torch 2.12 and later need this flag for query heads that share a key head
    if "enable_gqa" in signature(varlen_attn).parameters:
        options["enable_gqa"] = True
    return varlen_attn(
        q.contiguous(), k, v, at.starts_q, at.starts_k, at.longest_q, at.longest_k, window_size=(-1, 0), **options
    )  # type: ignore[return-value]


def _padded(q: Tensor, k: Tensor, v: Tensor, scaling: float, at: Layout) -> Tensor:
    outs = []
    for bucket in at.buckets:
        q_b = q[bucket.query_rows].transpose(1, 2)
        k_b, v_b = (_to_all_heads(x[bucket.key_rows], q.shape[1], dim=2).transpose(1, 2) for x in (k, v))
        out = scaled_dot_product_attention(q_b, k_b, v_b, attn_mask=bucket.allowed, scale=scaling)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    assert at.order is not None
    return torch.cat(outs).index_select(0, at.order)


def _to_all_heads(x: Tensor, heads: int, dim: int = 1) -> Tensor:
    """Repeat each key-value head for the query heads that share it."""
    repeated = x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], heads // x.shape[dim], x.shape[-1])
    return repeated.flatten(dim, dim + 1)


class GatherRows(torch.autograd.Function):
    """Select rows by index. A whole group reads a prompt's rows, so the backward pass sums their gradients in
    float32."""

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
    """Register the attention with transformers, which then builds no mask for it."""
    AttentionInterface.register(ATTENTION_NAME, torch.compiler.disable(packed_attention))

"""Triton kernels for a GPU.

`gated_backward`: the backward pass of silu(gate) * up over routed rows. The kernel reads and writes each number once.
The version that torch compiles takes 3.5 times as long as its memory traffic.

`sample_tokens`: one sampled token per row of logits, and its log-prob. vLLM adds noise to each logit, takes the
largest, and reads the logits again for the log-prob. Here the first kernel reads the logits once and sums exp(logit) by
block. The second chooses a block, and then a token of that block, with probabilities proportional to these sums.
"""

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor


def gated_backward(grad_RI: Tensor, gate_up: Tensor, weight_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (inner, gradient of gate and up, gradient of the row's weight in float32), like `experts._gated_backward`.
    gate_up: R x 2I. The rows of both inputs must be contiguous."""
    rows, width = grad_RI.shape
    inner, both = torch.empty_like(grad_RI), torch.empty_like(gate_up)
    grad_weight_R = torch.empty(rows, dtype=torch.float32, device=grad_RI.device)
    block = triton.next_power_of_2(width)
    warps = 4 if block <= 2048 else 8
    given = (grad_RI, gate_up, weight_R, inner, both, grad_weight_R, width)
    if rows:
        _rows[rows,](*given, BLOCK=block, num_warps=warps)  # pyright: ignore[reportIndexIssue]
    return inner, both, grad_weight_R


@triton.jit
def _rows(grads, gate_up, weights, inner, both, grad_weights, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = at < width
    gate = tl.load(gate_up + row * 2 * width + at, mask=here, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=here, other=0.0).to(tl.float32)
    grad = tl.load(grads + row * width + at, mask=here, other=0.0).to(tl.float32)
    weighed = grad * tl.load(weights + row).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    product = silu * up
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    tl.store(inner + row * width + at, product.to(inner.dtype.element_ty), mask=here)
    tl.store(both + row * 2 * width + at, (weighed * up * slope).to(both.dtype.element_ty), mask=here)
    tl.store(both + row * 2 * width + width + at, (weighed * silu).to(both.dtype.element_ty), mask=here)
    tl.store(grad_weights + row, tl.sum(grad * product))


#: Logits of a block, and blocks of a program. A row of 152,000 logits has 19 programs.
BLOCK, BLOCKS = 1024, 8


def sample_tokens(logits_BV: Tensor, slots_B: Tensor, seeds_S: Tensor, positions_B: Tensor, table_SL: Tensor) -> Tensor:
    """Sample a token per row by the softmax of its logits, and return the tokens (int64 of [B]). Store each log-prob at
    table_SL[slot, position]; a row without a slot (-1) uses the last slot. The token depends only on the row's logits,
    the slot's seed and the position. logits_BV: rows may be strided, but each row is contiguous."""
    rows, vocabulary = logits_BV.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    largest_BK = torch.empty((rows, blocks), dtype=torch.float32, device=logits_BV.device)
    sums_BK = torch.empty_like(largest_BK)
    tokens_B = torch.empty(rows, dtype=torch.int64, device=logits_BV.device)
    given = (logits_BV, logits_BV.stride(0), vocabulary, largest_BK, sums_BK, blocks)
    _block_sums[rows, triton.cdiv(blocks, BLOCKS)](*given, BLOCK=BLOCK, BLOCKS=BLOCKS, num_warps=8)  # pyright: ignore[reportIndexIssue]
    _draw[rows,](  # pyright: ignore[reportIndexIssue]
        *given,
        slots_B,
        seeds_S,
        positions_B,
        table_SL,
        len(table_SL),
        table_SL.stride(0),
        tokens_B,
        BLOCK=BLOCK,
        PADDED=triton.next_power_of_2(blocks),
        num_warps=4,
    )
    return tokens_B


@triton.jit
def _block_sums(logits, stride, vocabulary, largest, sums, blocks, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """Store the largest logit of each block of a row, and the sum of exp(logit - largest)."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    at = number[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=1)
    # a block of only -inf has sum 0, not NaN
    base = tl.where(top > float("-inf"), top, 0.0)
    total = tl.sum(tl.exp(x - base[:, None]), axis=1)
    tl.store(largest + row * blocks + number, base, mask=number < blocks)
    tl.store(sums + row * blocks + number, total, mask=number < blocks)


@triton.jit
def _draw(
    logits,
    stride,
    vocabulary,
    largest,
    sums,
    blocks,
    slots,
    seeds,
    positions,
    table,
    height,
    width,
    tokens,
    BLOCK: tl.constexpr,
    PADDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(positions + row).to(tl.int64)
    first, second, _, _ = tl.rand4x(tl.load(seeds + slot, mask=slot >= 0, other=0), position.to(tl.int32))
    number = tl.arange(0, PADDED)
    tops = tl.load(largest + row * blocks + number, mask=number < blocks, other=float("-inf"))
    parts = tl.load(sums + row * blocks + number, mask=number < blocks, other=0.0)
    top = tl.max(tl.where(parts > 0, tops, float("-inf")))
    parts = tl.where(parts > 0, parts * tl.exp(tops - top), 0.0)
    block = _random_index(parts, number, first)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
    token = block * BLOCK + _random_index(tl.exp(x - tl.max(x)), tl.arange(0, BLOCK), second)
    chosen = tl.load(logits + row * stride + token).to(tl.float32)
    tl.store(tokens + row, token.to(tl.int64))
    slot = tl.where(slot < 0, height - 1, slot)
    tl.store(table + slot * width + position, chosen - top - tl.log(tl.sum(parts)))


@triton.jit
def _random_index(weights, number, uniform):
    """Return an index with a probability proportional to its weight. Rounding never selects a weight of 0."""
    upto = tl.cumsum(weights)
    last = tl.max(tl.where(weights > 0, number, 0))
    return tl.minimum(tl.sum((upto <= uniform * tl.max(upto)).to(tl.int32)), last)

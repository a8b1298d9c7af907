"""Triton kernels for a GPU.

`gated_backward`: the backward pass of silu(gate) * up over routed rows. The kernel reads and writes each number once;
the version compiled by torch takes 3.5 times as long as its memory traffic. `token_logprobs`: the log-prob of one token
per row of logits, bit-identical to vLLM's (tests/gpu/test_sampling_gpu.py). vLLM's kernel uses one program per row and
reads the vocabulary twice: 0.12 ms of a 2.2 ms step on an H200. In this kernel several programs share a row and add its
parts in vLLM's order, in blocks of 1,024.
"""

from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor


def gated_backward(grad_RI: Tensor, gate_up: Tensor, weight_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (inner, gradient of gate and up, gradient of the row's weight in float32), like `experts._gated_backward`.
    gate_up: R x 2I; rows of both are contiguous."""
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


#: Logits that are summed together, by as many warps as in vLLM's kernel.
BLOCK = 1024
#: Blocks per program: 19 programs for a row of 152,000.
BLOCKS = 8


def token_logprobs(logits_BV: Tensor, tokens_B: Tensor) -> Tensor:
    """Return float32 of [B]: log softmax of each row at its token. logits_BV: rows may be strided, entries of a row
    not."""
    rows, vocabulary = logits_BV.shape
    parts = triton.cdiv(vocabulary, BLOCK * BLOCKS)
    largest_BP = logits_BV.new_empty((rows, parts), dtype=torch.float32)
    sums_BK = logits_BV.new_empty((rows, parts * BLOCKS), dtype=torch.float32)
    logprobs_B = logits_BV.new_empty(rows, dtype=torch.float32)
    given = (logits_BV, logits_BV.stride(0), vocabulary, largest_BP)
    padded = triton.next_power_of_2(parts)
    _largest[rows, parts](*given, CHUNK=BLOCK * BLOCKS, num_warps=8)  # pyright: ignore[reportIndexIssue]
    _sums[rows, parts](*given, sums_BK, BLOCK=BLOCK, BLOCKS=BLOCKS, PARTS=padded, num_warps=4)  # pyright: ignore[reportIndexIssue]
    _at_token[rows,](*given, sums_BK, tokens_B, logprobs_B, parts, BLOCKS=BLOCKS, PARTS=padded, num_warps=1)  # pyright: ignore[reportIndexIssue]
    return logprobs_B


@triton.jit
def _largest(logits, stride, vocabulary, largest, CHUNK: tl.constexpr):
    """Store the largest logit of each part of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf"))
    tl.store(largest + row * tl.num_programs(1) + part, tl.max(x).to(tl.float32))


@triton.jit
def _sums(logits, stride, vocabulary, largest, sums, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr):
    """Store the sum of exp(logit - the row's largest) of each block of a row."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    others = tl.arange(0, PARTS)
    top = tl.max(tl.load(largest + row * parts + others, mask=others < parts, other=float("-inf")))
    for number in range(BLOCKS):
        block = part * BLOCKS + number
        at = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(logits + row * stride + at, mask=at < vocabulary, other=0.0).to(tl.float32)
        added = tl.sum(tl.where(at < vocabulary, tl.exp(x - top), 0.0))
        tl.store(sums + row * parts * BLOCKS + block, added)


@triton.jit
def _at_token(
    logits, stride, vocabulary, largest, sums, tokens, logprobs, parts, BLOCKS: tl.constexpr, PARTS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    others = tl.arange(0, PARTS)
    top = tl.max(tl.load(largest + row * parts + others, mask=others < parts, other=float("-inf")))
    total = 0.0
    for block in range(parts * BLOCKS):
        total += tl.load(sums + row * parts * BLOCKS + block)
    x = tl.load(logits + row * stride + tl.load(tokens + row)).to(tl.float32)
    tl.store(logprobs + row, x - top - tl.log(total))

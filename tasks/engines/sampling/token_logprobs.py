"""Log-prob of one token a row of logits, by Triton on a GPU, meant to be vLLM's own value to the bit
(tests/gpu/test_token_logprobs.py).

vLLM's kernel has one program read a row's whole vocabulary, twice: 0.12 ms of a 2.2 ms step on an H200, however few
rows there are. Here a row is shared out, and its parts are added up in vLLM's order: blocks of 1,024, one after the
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from torch import Tensor

#: Logits that are added up together, by as many warps as vLLM's kernel has.
BLOCK = 1024
#: Blocks that one program reads: 19 programs a row of 152,000.
BLOCKS = 8


def token_logprobs(logits_BV: Tensor, tokens_B: Tensor) -> Tensor:
    """float32 of [B]: log softmax of each row at its token. logits_BV: rows may be strided, a row's entries not."""
    import torch

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
    """The largest logit of each part of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf"))
    tl.store(largest + row * tl.num_programs(1) + part, tl.max(x).to(tl.float32))


@triton.jit
def _sums(logits, stride, vocabulary, largest, sums, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr):
    """Of each block of a row the sum of exp(logit - the row's largest)."""
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

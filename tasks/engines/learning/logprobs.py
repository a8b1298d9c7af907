"""Log-probs and entropies of target tokens in memory that does not grow with the vocabulary.

The head is frozen, so the gradient of one token's log-prob is one vector as wide as the hidden state. It is made in the
forward pass, chunk by chunk, while the chunk's probabilities are at hand; the backward pass scales it. Logits exist
once, for one chunk, in float32, and are never made again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def _terms(
    logits: Tensor, targets: Tensor, dtype: torch.dtype, of_entropy: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(log-probs, entropies, p - onehot, p (log p + entropy)), the last two of `dtype`: -temperature times what
    log-prob and entropy move by with the logits. The last only where it is asked for."""
    import torch

    target = targets[:, None]
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    logprobs, p = log_p.gather(1, target), log_p.exp()
    entropies = -torch.linalg.vecdot(p, log_p)
    # p - 1 before rounding, or sure tokens lose it
    slopes = torch.where(torch.arange(logits.shape[1], device=logits.device) == target, logprobs.expm1(), p)
    falls = (p * (log_p + entropies[:, None])).to(dtype) if of_entropy else None
    return logprobs[:, 0], entropies, slopes.to(dtype), falls


@cache
def _compiled_terms() -> Any:
    import torch

    return torch.compile(_terms, dynamic=True)


@cache
def _function() -> Any:
    import torch

    class TokenLogprobs(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any,
            hidden_KD: Tensor,
            weight_VD: Tensor,
            targets_K: Tensor,
            chunk: int,
            temperature: float,
            of_entropy: bool,
        ) -> Any:
            logprobs_K = torch.empty(len(targets_K), dtype=torch.float32, device=hidden_KD.device)
            entropy_K = torch.empty_like(logprobs_K)
            slope_KD = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] else None
            fall_KD = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] and of_entropy else None
            terms = _compiled_terms() if hidden_KD.is_cuda else _terms
            for start in range(0, len(targets_K), chunk):
                part = slice(start, start + chunk)
                logits = _logits(hidden_KD[part], weight_VD)
                if temperature != 1:
                    logits /= temperature
                logprobs_K[part], entropy_K[part], slopes, falls = terms(
                    logits, targets_K[part], weight_VD.dtype, fall_KD is not None
                )
                if slope_KD is not None:
                    torch.mm(slopes, weight_VD, out=slope_KD[part])
                if fall_KD is not None and falls is not None:
                    torch.mm(falls, weight_VD, out=fall_KD[part])
                del logits, slopes, falls
            if fall_KD is None:
                ctx.mark_non_differentiable(entropy_K)
            ctx.save_for_backward(*(made for made in (slope_KD, fall_KD) if made is not None))
            ctx.temperature = temperature
            return logprobs_K, entropy_K

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            # of log-probs, and of entropies where they carry one
            parts = [
                falls_KD * (-grad_K / ctx.temperature)[:, None].to(falls_KD.dtype)
                for falls_KD, grad_K in zip(ctx.saved_tensors, grads, strict=False)
            ]
            return (sum(parts[1:], parts[0]), *[None] * 5)

    return TokenLogprobs


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    import torch

    if hidden.dtype == torch.float32:
        return hidden @ weight.T
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return (hidden @ weight.T).float()


def token_logprobs(
    hidden_KD: Tensor,
    weight_VD: Tensor,
    targets_K: Tensor,
    chunk: int,
    temperature: float = 1.0,
    of_entropy: bool = False,
) -> tuple[Tensor, Tensor]:
    """(log-probs_K, entropy_K in nats), float32, of targets under softmax(hidden · weightᵀ / temperature). Log-probs
    carry a gradient, entropies only where `of_entropy`, both only to `hidden`."""
    return _function().apply(hidden_KD, weight_VD, targets_K, chunk, temperature, of_entropy)

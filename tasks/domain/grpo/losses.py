"""Policy-gradient losses behind one signature: per-token terms and the constant they are divided by.

A term sees log-probs_T under the policy being trained, behaviour log-probs_T and advantages_T (one per token, that of
its rollout) and returns terms_T to be summed. Every divisor is known before the forward pass, so packing, micro-batches
and dropped dead groups leave the gradient as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from storage.errors import UserError
from tasks.domain.grpo.types import LearnerConfig

if TYPE_CHECKING:
    from torch import Tensor

Term = Callable[["Tensor", "Tensor", "Tensor", LearnerConfig], "Tensor"]


def importance_sampling(logprobs_T: Tensor, behaviour_T: Tensor, advantages_T: Tensor, _: LearnerConfig) -> Tensor:
    """-ratio · A, unclipped, the gradient flowing through the ratio."""
    return -(logprobs_T - behaviour_T).exp() * advantages_T


def clipped(logprobs_T: Tensor, behaviour_T: Tensor, advantages_T: Tensor, config: LearnerConfig) -> Tensor:
    """-min(ratio · A, clip(ratio, 1 - low, 1 + high) · A): Schulman et al. 2017, eq. 7."""
    import torch

    ratio = (logprobs_T - behaviour_T).exp()
    bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    return -torch.minimum(ratio * advantages_T, bounded * advantages_T)


def reinforce(logprobs_T: Tensor, _b: Tensor, advantages_T: Tensor, _: LearnerConfig) -> Tensor:
    """-log-prob · A, without a ratio."""
    return -logprobs_T * advantages_T


def cispo(logprobs_T: Tensor, behaviour_T: Tensor, advantages_T: Tensor, config: LearnerConfig) -> Tensor:
    """-sg(min(ratio, 1 + high)) · A · log-prob: clips the weight and keeps every token's gradient (MiniMax-M1)."""
    weight = (logprobs_T.detach() - behaviour_T).exp().clamp(max=1 + config.clip_high)
    return -weight * advantages_T * logprobs_T


def truncated_importance(
    logprobs_T: Tensor, behaviour_T: Tensor, advantages_T: Tensor, config: LearnerConfig
) -> Tensor:
    """-sg(min(ratio, cap)) · A · log-prob, token-wise: bounds what the sampler's and the trainer's gap can do."""
    weight = (logprobs_T.detach() - behaviour_T).exp().clamp(max=config.tis_cap)
    return -weight * advantages_T * logprobs_T


@dataclass(frozen=True, slots=True)
class Loss:
    """reduction: `sum` over tokens; `token_mean` over the step's trained tokens; `constant`: rollouts × max_tokens;
    `rollout_mean`: a sum over tokens, a mean over rollouts."""

    term: Term
    reduction: Literal["sum", "token_mean", "constant", "rollout_mean"]
    needs_advantage: str | None = None


LOSSES: dict[str, Loss] = {
    "importance_sampling": Loss(importance_sampling, "sum"),
    "ppo": Loss(clipped, "sum"),
    "dapo": Loss(clipped, "token_mean"),
    "dr_grpo": Loss(clipped, "constant", needs_advantage="centred"),
    "rloo": Loss(reinforce, "rollout_mean", needs_advantage="leave_one_out"),
    "cispo": Loss(cispo, "token_mean"),
    "tis": Loss(truncated_importance, "sum"),
}


def loss_for(config: LearnerConfig) -> Loss:
    """The configured loss, after checking that the rest of the configuration goes with it."""
    if config.loss not in LOSSES:
        raise UserError(f"learner: unknown loss {config.loss!r}; choose from {', '.join(LOSSES)}")
    loss = LOSSES[config.loss]
    if loss.needs_advantage not in (None, config.advantage):
        raise UserError(
            f"learner: loss {config.loss} is defined with advantage {loss.needs_advantage}, not {config.advantage}"
        )
    if loss.reduction == "constant" and config.max_tokens is None:
        raise UserError(f"learner: loss {config.loss} divides by max_tokens; set it to the longest completion")
    return loss


def divisor(loss: Loss, config: LearnerConfig, *, trained_tokens: int, rollouts: int) -> float:
    """What the summed terms of one step are divided by.

    Adam's eps is not scale-free: a mean over 1e5 tokens shrinks gradients toward 1e-8, where a sum never goes.
    """
    match loss.reduction:
        case "sum":
            return 1.0
        case "token_mean":
            return float(max(trained_tokens, 1))
        case "rollout_mean":
            return float(max(rollouts, 1))
        case "constant":
            return float(max(rollouts, 1) * (config.max_tokens or 1))

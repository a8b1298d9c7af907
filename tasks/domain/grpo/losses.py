"""Policy-gradient losses. A loss is one term per token, and a divisor of the sum of the terms.

A term gets log-probs under the policy being trained, behaviour log-probs, advantages (of the token's rollout) and the
number of the rollout, for a batch of T tokens. Packing, micro-batches and dropped dead groups do not change the
gradient, because divisors are known before the forward pass and rollouts are never split.

Log-ratios of a token (in gspo: of a rollout) are clamped at MAX_LOG_RATIO before exponentiation. Beyond that limit the
gradient is zero, as with clipping. Losses that cap a weight (cispo, tis) have that bound; rloo has no ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES, OWN
from tasks.domain.grpo.steps import shuffled
from tasks.domain.plugins import Registry, error_line

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.domain.grpo.learner_config import LearnerConfig


#: A ratio of 22,026. With a weight of 2^24 = e^16.6 one token would hide all others of a batch in float32; with this
#: one they keep three digits. Beyond it sampler and learner have different policies.
MAX_LOG_RATIO = 10.0


class Tokens(NamedTuple):
    """Input of a term. rollout_T: int64, equal within a rollout. weights_T: 2 x T (see TokenWeights), if the loss
    weights tokens. entropy_T: has a gradient, if there is an entropy bonus."""

    logprobs_T: Tensor
    behaviour_T: Tensor
    advantages_T: Tensor
    rollout_T: Tensor
    weights_T: Tensor | None = None
    entropy_T: Tensor | None = None


Term = Callable[[Tokens, "LearnerConfig"], "Tensor"]


def log_ratio(logprobs_T: Tensor, behaviour_T: Tensor) -> Tensor:
    """Return the log-prob minus the behaviour log-prob, with an upper limit. A value at the limit has no gradient."""
    return (logprobs_T - behaviour_T).clamp(max=MAX_LOG_RATIO)


def importance_sampling(t: Tokens, _: LearnerConfig) -> Tensor:
    """Return -ratio · A, unclipped up to MAX_LOG_RATIO, with the gradient through the ratio."""
    return -log_ratio(t.logprobs_T, t.behaviour_T).exp() * t.advantages_T


def _clipped(ratio: Tensor, advantages: Tensor, config: LearnerConfig) -> Tensor:
    bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    return -(ratio * advantages).minimum(bounded * advantages)


def clipped(t: Tokens, config: LearnerConfig) -> Tensor:
    """Return -min(ratio · A, clip(ratio, 1 - low, 1 + high) · A): Schulman et al. 2017 (arXiv 1707.06347), eq. 7."""
    return _clipped(log_ratio(t.logprobs_T, t.behaviour_T).exp(), t.advantages_T, config)


def sequence_clipped(t: Tokens, config: LearnerConfig) -> Tensor:
    """Return `clipped` with one ratio per rollout, exp(mean log-ratio of its tokens): Zheng et al. 2025 (GSPO, arXiv
    2507.18071), eq. 5 and 7. The paper clips at 3e-4 and 4e-4, because a mean varies less than one token."""
    mean_T = _mean_of_rollout(t.logprobs_T - t.behaviour_T, t.rollout_T)
    return _clipped(mean_T.clamp(max=MAX_LOG_RATIO).exp(), t.advantages_T, config)


def _mean_of_rollout(values_T: Tensor, rollout_T: Tensor) -> Tensor:
    _, place_T, length_R = rollout_T.unique(return_inverse=True, return_counts=True)
    sums_R = values_T.new_zeros(len(length_R)).index_add(0, place_T, values_T)
    return (sums_R / length_R)[place_T]


def reinforce(t: Tokens, _: LearnerConfig) -> Tensor:
    """Return -log-prob · A, without a ratio (REINFORCE, Williams 1992; RLOO by its advantage, arXiv 2402.14740)."""
    return -t.logprobs_T * t.advantages_T


def cispo(t: Tokens, config: LearnerConfig) -> Tensor:
    """Return -sg(min(ratio, 1 + high)) · A · log-prob, where sg stops the gradient. Only the weight is clipped, so
    every token keeps a gradient (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5)."""
    return _weighted(t, 1 + config.clip_high)


def truncated_importance(t: Tokens, config: LearnerConfig) -> Tensor:
    """Return `cispo` with the limit `tis_cap`, which bounds the effect of a mismatch of sampler and trainer (Ionides
    2008; Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training")."""
    return _weighted(t, config.tis_cap)


def _weighted(t: Tokens, cap: float) -> Tensor:
    return -(t.logprobs_T.detach() - t.behaviour_T).exp().clamp(max=cap) * t.advantages_T * t.logprobs_T


def sapo(t: Tokens, config: LearnerConfig) -> Tensor:
    """Return -(4/τ) · σ(τ (ratio - 1)) · A, where τ depends on the sign of the advantage. The sigmoid limits the ratio
    softly on both sides, where other losses clip it (SAPO, Gao et al. 2025, arXiv 2511.20347, eq. 5 and 6). At ratio 1
    the slope is 1."""
    tau_T = t.advantages_T.new_full(t.advantages_T.shape, config.tau_negative)
    tau_T = tau_T.masked_fill(t.advantages_T > 0, config.tau_positive)
    ratio_T = log_ratio(t.logprobs_T, t.behaviour_T).exp()
    return -(4 / tau_T) * (tau_T * (ratio_T - 1)).sigmoid() * t.advantages_T


def k3(logprobs_T: Tensor, reference_T: Tensor) -> Tensor:
    """Return e^d - d - 1 with d = reference - log-prob, which is never negative; d has an upper limit (Schulman 2020,
    "Approximating KL divergence", k3; Shao et al. 2024, arXiv 2402.03300, eq. 4).

    The value of k3 is an unbiased estimate of KL(policy ‖ reference) from the policy's own tokens. The gradient of k3
    is not unbiased: its expectation is the gradient of the reverse direction, KL(reference ‖ policy).
    """
    d = (reference_T - logprobs_T).clamp(max=MAX_LOG_RATIO)
    return d.exp() - d - 1


class TokenWeights(NamedTuple):
    """Weights of the T tokens of an update, float32. term_T multiplies the term of each token. kl_T multiplies
    |log-prob - behaviour log-prob|, which is added to the term."""

    term_T: np.ndarray
    kl_T: np.ndarray


#: Computes the weights of an update's tokens from behaviour log-probs and advantages. The key seeds random choices.
WeighTokens = Callable[[np.ndarray, np.ndarray, "LearnerConfig", Sequence[object]], TokenWeights]


def covariances(logprobs_T: np.ndarray, advantages_T: np.ndarray) -> np.ndarray:
    """Return cov_t = (logp_t - mean logp) · (A_t - mean A) over the tokens of one update that have an advantage. A few
    tokens with a large covariance cause most of the loss of entropy (Cui et al. 2025, arXiv 2505.22617, eq. 6). logp is
    the sampler's, so that packing has no effect. The authors take the current policy's, and include dead groups.

    >>> covariances(np.array([-1.0, -3.0]), np.array([1.0, -1.0])).tolist()
    [1.0, 1.0]
    """
    return (logprobs_T - logprobs_T.mean()) * (advantages_T - advantages_T.mean())


def clip_cov(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, config: LearnerConfig, key: Sequence[object]
) -> TokenWeights:
    """Remove the gradient of a random `cov_share` of all tokens (at least one). These tokens are chosen among those
    with a covariance between cov_low and cov_high (Clip-Cov, eq. 9 and 10)."""
    found_T = covariances(logprobs_T, advantages_T)
    eligible = np.flatnonzero((found_T > config.cov_low) & (found_T < config.cov_high))
    chosen = shuffled([str(i) for i in eligible], *key)[: max(1, int(config.cov_share * len(found_T)))]
    term_T = np.ones(len(found_T), np.float32)
    term_T[[int(i) for i in chosen]] = 0.0
    return TokenWeights(term_T, np.zeros_like(term_T))


def kl_cov(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, config: LearnerConfig, _: Sequence[object]
) -> TokenWeights:
    """Add a KL penalty towards the sampler to the `cov_share` of the tokens (at least one) with the largest covariance.
    The penalty is `cov_kl` · |log-ratio|, as in the authors' code (KL-Cov, eq. 11 and 12)."""
    found_T = covariances(logprobs_T, advantages_T)
    kl_T = np.zeros(len(found_T), np.float32)
    kl_T[np.argsort(-found_T, kind="stable")[: max(1, int(config.cov_share * len(found_T)))]] = config.cov_kl
    return TokenWeights(np.ones_like(kl_T), kl_T)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: a term per token, and how the terms are reduced to one number.

    - reduction: `sum` over tokens; `token_mean` over all tokens of the batch; `constant`: sum divided by rollouts ×
      max_tokens; `rollout_mean`: sum over the tokens of a rollout, mean over rollouts; `mean_of_means`: mean over the
      tokens of a rollout, mean over rollouts.
    - weigh: computes token weights; None for a loss without.
    - reads: settings that only this loss uses.
    - reinforces: under the policy that sampled, the gradient is that of REINFORCE: -A for each token's log-prob.
    - version: increased when the terms change, as for objectives.
    """

    term: Term
    reduction: Literal["sum", "token_mean", "constant", "rollout_mean", "mean_of_means"]
    needs_advantage: str | None = None
    weigh: WeighTokens | None = None
    reads: tuple[str, ...] = ()
    reinforces: bool = True
    version: int | str = 1


_CLIPS = ("clip_low", "clip_high")
_OWN: dict[str, Loss] = {
    "importance_sampling": Loss(importance_sampling, "sum"),
    "ppo": Loss(clipped, "sum", reads=_CLIPS),
    "grpo": Loss(clipped, "mean_of_means", needs_advantage="standardised", reads=_CLIPS),
    "dapo": Loss(clipped, "token_mean", reads=_CLIPS),
    "dr_grpo": Loss(clipped, "constant", needs_advantage="centred", reads=(*_CLIPS, "max_tokens")),
    "gspo": Loss(sequence_clipped, "mean_of_means", reads=_CLIPS),
    "rloo": Loss(reinforce, "rollout_mean", needs_advantage="leave_one_out"),
    "cispo": Loss(cispo, "token_mean", reads=("clip_high",)),
    "tis": Loss(truncated_importance, "sum", reads=("tis_cap",)),
    "sapo": Loss(sapo, "mean_of_means", reads=("tau_positive", "tau_negative")),
    "clip_cov": Loss(clipped, "token_mean", "standardised", clip_cov, (*_CLIPS, "cov_share", "cov_low", "cov_high")),
    "kl_cov": Loss(importance_sampling, "token_mean", "standardised", kl_cov, ("cov_share", "cov_kl"), version=2),
}


def _of_package(found: object, _: str, version: str) -> Loss:
    loss = found if isinstance(found, Loss) else Loss(found, "sum")  # type: ignore[arg-type]
    return replace(loss, version=version)


#: Losses by the names used in profiles. A plug-in (`varband.losses`) is a `Loss`, or a function for a summed term.
LOSSES = Registry("varband.losses", _OWN, _of_package)


def loss_for(config: LearnerConfig) -> Loss:
    """Return the configured loss. Raise UserError if the loss is incompatible with other settings."""
    if config.loss not in LOSSES:
        raise UserError(f"learner: unknown loss {config.loss!r}; choose from {', '.join(LOSSES)}")
    loss = LOSSES[config.loss]
    if loss.needs_advantage not in (None, config.advantage):
        raise UserError(f"learner: loss {config.loss} needs advantage {loss.needs_advantage}, not {config.advantage}")
    if loss.reduction == "constant" and config.max_tokens is None:
        raise UserError(f"learner: loss {config.loss} divides by max_tokens; set it to the longest completion's length")
    if config.loss == "kl_cov" and config.updates == 1 and not config.staleness:
        raise UserError(
            "learner: loss kl_cov penalises distance from the sampling policy, which is zero with one update per step;"
            " set minibatches, epochs or staleness"
        )
    return loss


def try_loss(config: LearnerConfig) -> None:
    """Call another package's loss on made-up tokens of two rollouts, under the policy that sampled them.

    Raise UserError if the loss raises, does not return a finite term and gradient for each token, or has another
    gradient than REINFORCE without `reinforces=False`.
    """
    if config.loss in _OWN or config.loss not in LOSSES:
        return
    import torch

    loss, name = LOSSES[config.loss], f"loss {config.loss}"
    behaviour_T = torch.tensor([-1.0, -2.0, -0.5, -3.0])
    logprobs_T, advantages_T = behaviour_T.clone().requires_grad_(), torch.tensor([0.5, 0.5, -1.5, -1.5])
    weights_T = torch.tensor([[1.0], [0.0]]).expand(2, 4)
    tokens = Tokens(logprobs_T, behaviour_T, advantages_T, torch.tensor([0, 0, 1, 1]), weights_T, -behaviour_T)
    try:
        terms_T = loss.term(tokens, config)
        shape = tuple(terms_T.shape)
        terms_T.sum().backward()
    except (Exception, SystemExit) as error:  # another package's code may raise anything
        raise UserError(f"{name} raised {error_line(error)} in a test with four invented tokens") from None
    slope_T = logprobs_T.grad
    if shape != (4,) or slope_T is None or not bool(torch.isfinite(terms_T.detach() + slope_T).all()):
        raise UserError(f"{name} must return one finite term with a gradient for each of 4 tokens, not {terms_T}")
    if loss.reinforces and not torch.allclose(slope_T, -advantages_T, atol=1e-4):
        raise UserError(
            f"{name}: at the sampling policy, its gradient for advantages {advantages_T.tolist()} is"
            f" {slope_T.tolist()}. REINFORCE's gradient would be the negative of these advantages. If the difference is"
            " intended, declare Loss(..., reinforces=False)"
        )


#: Settings that have an effect only if another setting is on.
_BESIDE = {"max_tokens": "overlong_cache", "entropy_delta": "entropy_target"}


def read_by(config: LearnerConfig, setting: str) -> bool:
    """Return whether a setting has an effect in the configured training; True if the loss is unknown."""
    if config.loss not in LOSSES:
        return True
    known = {name for one in (*_OWN.values(), *OWN.values()) for name in one.reads} | _BESIDE.keys()
    chosen = {*LOSSES[config.loss].reads, *ADVANTAGES[config.advantage].reads}
    return setting not in known or setting in chosen or bool(setting in _BESIDE and getattr(config, _BESIDE[setting]))


def refuse_unread(settings: Iterable[str], configs: Sequence[LearnerConfig]) -> None:
    """Raise UserError for a setting that has no effect in any of these trainings."""
    for setting in settings:
        if not any(read_by(config, setting) for config in configs):
            raise UserError(f"training.{unread(setting, *configs)}")


def unread(setting: str, *configs: LearnerConfig) -> str:
    advantages, losses = (", ".join({getattr(one, name): 0 for one in configs}) for name in ("advantage", "loss"))
    return (
        f"{setting} has no effect with advantage {advantages} and loss {losses}; leave it out, or choose an advantage"
        " or loss that uses it (docs/training.md)"
    )


def summed(
    loss: Loss, t: Tokens, reference_T: Tensor | None, config: LearnerConfig, entropy_weight: float = 0.0
) -> Tensor:
    """Return the sum of the terms over all tokens. To each term add `kl_weight` · k3 if there is a reference (Shao et
    al. 2024, eq. 3), and subtract the weighted entropy (Mnih et al. 2016, arXiv 1602.01783, section 4)."""
    terms_T = loss.term(t, config)
    if t.weights_T is not None:
        held_T = (t.logprobs_T - t.behaviour_T).abs()  # not exponentiated, so that the pull grows with the distance
        terms_T = t.weights_T[0] * terms_T + t.weights_T[1] * held_T
    if reference_T is not None:
        terms_T = terms_T + config.kl_weight * k3(t.logprobs_T, reference_T)
    if entropy_weight and t.entropy_T is not None:
        terms_T = terms_T - entropy_weight * t.entropy_T
    if loss.reduction == "mean_of_means":
        _, place_T, length_R = t.rollout_T.unique(return_inverse=True, return_counts=True)
        terms_T = terms_T / length_R[place_T]
    return terms_T.sum()


def divisor(loss: Loss, config: LearnerConfig, *, tokens: int, rollouts: int) -> float:
    """Return the divisor of one update's summed terms. The divisor counts the tokens and rollouts of the whole batch,
    with dead groups, as in Yu et al. 2025 (DAPO, arXiv 2503.14476, eq. 8), MiniMax-M1 and TRL's `dapo`. A sum and a
    mean train differently despite Adam, because a mean over 1e5 tokens shrinks gradients towards Adam's eps, 1e-8."""
    divisors = {"sum": 1, "token_mean": tokens, "constant": max(rollouts, 1) * (config.max_tokens or 1)}
    return float(max(divisors.get(loss.reduction, rollouts), 1))

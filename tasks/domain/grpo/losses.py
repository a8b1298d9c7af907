"""Policy-gradient losses behind one signature: a term for each token and what the sum of the terms is divided by.

A term sees a batch of tokens_T: log-probs under the policy being trained, behaviour log-probs, advantages (that of the
token's rollout) and which rollout it belongs to. Every divisor is known before the forward pass and a rollout is never
cut, so packing, micro-batches and dropped dead groups leave the gradient as it is.

Log-ratios are bounded at MAX_LOG_RATIO before they are exponentiated, a token's or (gspo) a rollout's; beyond it the
gradient is zero, as clipping has it. Losses that cap a weight (cispo, tis) are bounded by that cap, and rloo has no
ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from storage.errors import UserError
from tasks.domain.grpo.advantages.registry import ADVANTAGES, OWN
from tasks.domain.grpo.steps import shuffled

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.domain.grpo.learner_config import LearnerConfig


#: A ratio of 22,026. In float32 a weight of 2^24 = e^16.6 would drown every other token of the batch; at this one they
#: keep three digits. A sampler and a learner that differ by more do not speak of the same policy.
MAX_LOG_RATIO = 10.0


class Tokens(NamedTuple):
    """What a term sees. rollout_T: int64, equal within a rollout. weights_T: 2 x T, as TokenWeights, where the loss
    weighs tokens. entropy_T: with a gradient, where there is an entropy bonus."""

    logprobs_T: Tensor
    behaviour_T: Tensor
    advantages_T: Tensor
    rollout_T: Tensor
    weights_T: Tensor | None = None
    entropy_T: Tensor | None = None


Term = Callable[[Tokens, "LearnerConfig"], "Tensor"]


def log_ratio(logprobs_T: Tensor, behaviour_T: Tensor) -> Tensor:
    """log-prob minus behaviour log-prob, bounded above; a bounded one has no gradient."""
    return (logprobs_T - behaviour_T).clamp(max=MAX_LOG_RATIO)


def importance_sampling(t: Tokens, _: LearnerConfig) -> Tensor:
    """-ratio · A, unclipped up to MAX_LOG_RATIO, the gradient flowing through the ratio."""
    return -log_ratio(t.logprobs_T, t.behaviour_T).exp() * t.advantages_T


def _clipped(ratio: Tensor, advantages: Tensor, config: LearnerConfig) -> Tensor:
    bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    return -(ratio * advantages).minimum(bounded * advantages)


def clipped(t: Tokens, config: LearnerConfig) -> Tensor:
    """-min(ratio · A, clip(ratio, 1 - low, 1 + high) · A): Schulman et al. 2017 (arXiv 1707.06347), eq. 7."""
    return _clipped(log_ratio(t.logprobs_T, t.behaviour_T).exp(), t.advantages_T, config)


def sequence_clipped(t: Tokens, config: LearnerConfig) -> Tensor:
    """The same with one ratio a rollout, exp(mean over its tokens of the log-ratio): Zheng et al. 2025 (GSPO, arXiv
    2507.18071), eq. 5 and 7. The paper clips at 3e-4 and 4e-4: a mean moves less than a token."""
    mean_T = _mean_of_rollout(t.logprobs_T - t.behaviour_T, t.rollout_T)
    return _clipped(mean_T.clamp(max=MAX_LOG_RATIO).exp(), t.advantages_T, config)


def _mean_of_rollout(values_T: Tensor, rollout_T: Tensor) -> Tensor:
    _, place_T, length_R = rollout_T.unique(return_inverse=True, return_counts=True)
    sums_R = values_T.new_zeros(len(length_R)).index_add(0, place_T, values_T)
    return (sums_R / length_R)[place_T]


def reinforce(t: Tokens, _: LearnerConfig) -> Tensor:
    """-log-prob · A, without a ratio (REINFORCE, Williams 1992; RLOO by its advantage, arXiv 2402.14740)."""
    return -t.logprobs_T * t.advantages_T


def cispo(t: Tokens, config: LearnerConfig) -> Tensor:
    """-sg(min(ratio, 1 + high)) · A · log-prob: clips the weight and keeps every token's gradient (MiniMax-M1,
    arXiv 2506.13585, eq. 4 and 5)."""
    return _weighted(t, 1 + config.clip_high)


def truncated_importance(t: Tokens, config: LearnerConfig) -> Tensor:
    """The same with a cap of its own: bounds what the gap between sampler and trainer can do (Ionides 2008; Yao et al.
    2025, "Your efficient RL framework secretly brings you off-policy RL training")."""
    return _weighted(t, config.tis_cap)


def _weighted(t: Tokens, cap: float) -> Tensor:
    return -(t.logprobs_T.detach() - t.behaviour_T).exp().clamp(max=cap) * t.advantages_T * t.logprobs_T


def sapo(t: Tokens, config: LearnerConfig) -> Tensor:
    """-(4/τ) · σ(τ (ratio - 1)) · A, τ that of the advantage's sign: a gate that closes softly on both sides where
    clipping cuts (SAPO, Gao et al. 2025, arXiv 2511.20347, eq. 5 and 6). Where nothing has moved its slope is the
    ratio's."""
    tau_T = t.advantages_T.new_full(t.advantages_T.shape, config.tau_negative)
    tau_T = tau_T.masked_fill(t.advantages_T > 0, config.tau_positive)
    ratio_T = log_ratio(t.logprobs_T, t.behaviour_T).exp()
    return -(4 / tau_T) * (tau_T * (ratio_T - 1)).sigmoid() * t.advantages_T


def k3(logprobs_T: Tensor, reference_T: Tensor) -> Tensor:
    """Return e^d - d - 1 with d = reference - log-prob, bounded above, which is never negative (Schulman 2020,
    "Approximating KL divergence", k3; Shao et al. 2024, arXiv 2402.03300, eq. 4).

    Its value is an unbiased estimate of KL(policy ‖ reference) from the policy's own tokens. Its gradient is not the
    gradient of that: in expectation it is the gradient of the reverse direction, KL(reference ‖ policy)."""
    d = (reference_T - logprobs_T).clamp(max=MAX_LOG_RATIO)
    return d.exp() - d - 1


class TokenWeights(NamedTuple):
    """Of the T tokens of an update, float32. term_T multiplies a token's term; kl_T weighs |log-prob - behaviour|."""

    term_T: np.ndarray
    kl_T: np.ndarray


#: Weights of an update's tokens, from their behaviour log-probs and advantages; a draw is a function of the key.
WeighTokens = Callable[[np.ndarray, np.ndarray, "LearnerConfig", Sequence[object]], TokenWeights]


def covariances(logprobs_T: np.ndarray, advantages_T: np.ndarray) -> np.ndarray:
    """cov_t = (logp_t - mean logp) · (A_t - mean A), over the tokens of one update that have an advantage. Entropy
    falls by it, and few tokens carry it (Cui et al. 2025, arXiv 2505.22617, eq. 6, of which Clip-Cov and KL-Cov
    are). logp is the sampler's, known before the forward pass, so that packs change nothing; the authors take the
    policy's of the moment and count the tokens of dead groups.

    >>> covariances(np.array([-1.0, -3.0]), np.array([1.0, -1.0])).tolist()
    [1.0, 1.0]
    """
    return (logprobs_T - logprobs_T.mean()) * (advantages_T - advantages_T.mean())


def clip_cov(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, config: LearnerConfig, key: Sequence[object]
) -> TokenWeights:
    """A random `cov_share` of all tokens (at least one), drawn between cov_low and cov_high, has no gradient (eq. 9,
    10)."""
    found_T = covariances(logprobs_T, advantages_T)
    eligible = np.flatnonzero((found_T > config.cov_low) & (found_T < config.cov_high))
    drawn = shuffled([str(i) for i in eligible], *key)[: max(1, int(config.cov_share * len(found_T)))]
    term_T = np.ones(len(found_T), np.float32)
    term_T[[int(i) for i in drawn]] = 0.0
    return TokenWeights(term_T, np.zeros_like(term_T))


def kl_cov(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, config: LearnerConfig, _: Sequence[object]
) -> TokenWeights:
    """The `cov_share` of the tokens (at least one) with the largest covariance is held to the sampler by `cov_kl` (eq.
    11, 12; |log-ratio| as in the authors' code)."""
    found_T = covariances(logprobs_T, advantages_T)
    kl_T = np.zeros(len(found_T), np.float32)
    kl_T[np.argsort(-found_T, kind="stable")[: max(1, int(config.cov_share * len(found_T)))]] = config.cov_kl
    return TokenWeights(np.ones_like(kl_T), kl_T)


@dataclass(frozen=True, slots=True)
class Loss:
    """reduction: `sum` over tokens; `token_mean` over all tokens of the batch; `constant`: rollouts × max_tokens;
    `rollout_mean`: a sum over a rollout's tokens, a mean over rollouts; `mean_of_means`: a mean over a rollout's
    tokens, a mean over rollouts. weigh: what some tokens weigh, or nothing. reads: settings that mean nothing to the
    others. version: as an objective's."""

    term: Term
    reduction: Literal["sum", "token_mean", "constant", "rollout_mean", "mean_of_means"]
    needs_advantage: str | None = None
    weigh: WeighTokens | None = None
    reads: tuple[str, ...] = ()
    version: int = 1


_CLIPS = ("clip_low", "clip_high")
LOSSES: dict[str, Loss] = {
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
    if config.loss == "kl_cov" and config.updates == 1 and not config.staleness:
        raise UserError(
            "learner: loss kl_cov holds tokens to the policy that sampled, which one update a step has not left yet;"
            " set minibatches, epochs or staleness"
        )
    return loss


#: Settings that are read where another one is on.
_BESIDE = {"max_tokens": "overlong_cache", "entropy_delta": "entropy_target"}


def read_by(config: LearnerConfig, setting: str) -> bool:
    """Return whether anything of the configured training reads a setting; yes where the loss is unknown."""
    if config.loss not in LOSSES:
        return True
    known = {name for one in (*LOSSES.values(), *OWN.values()) for name in one.reads} | _BESIDE.keys()
    chosen = {*LOSSES[config.loss].reads, *ADVANTAGES[config.advantage].reads}
    return setting not in known or setting in chosen or bool(setting in _BESIDE and getattr(config, _BESIDE[setting]))


def refuse_unread(settings: Iterable[str], configs: Sequence[LearnerConfig]) -> None:
    """Errors: UserError for a setting that none of these trainings reads."""
    for setting in settings:
        if not any(read_by(config, setting) for config in configs):
            raise UserError(f"training.{unread(setting, *configs)}")


def unread(setting: str, *configs: LearnerConfig) -> str:
    advantages, losses = (", ".join({getattr(one, name): 0 for one in configs}) for name in ("advantage", "loss"))
    return (
        f"{setting} is read by nothing here: not by advantage {advantages}, nor by loss {losses}; leave it"
        " out or choose what it belongs to (docs/training.md)"
    )


def summed(
    loss: Loss, t: Tokens, reference_T: Tensor | None, config: LearnerConfig, entropy_weight: float = 0.0
) -> Tensor:
    """The terms' sum. Beside each: `kl_weight` · k3 where there is a reference (Shao et al. 2024, eq. 3), and minus the
    token's entropy, weighed (Mnih et al. 2016, arXiv 1602.01783, section 4)."""
    terms_T = loss.term(t, config)
    if t.weights_T is not None:
        held_T = (t.logprobs_T - t.behaviour_T).abs()  # never exponentiated: the further away, the more it is to pull
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
    """What the summed terms of one update are divided by.

    tokens, rollouts: of the whole batch, those of dead groups with them, as Yu et al. 2025 (DAPO, arXiv 2503.14476,
    eq. 8), MiniMax-M1 and TRL's `dapo` count.
    Adam's eps is not scale-free: a mean over 1e5 tokens shrinks gradients toward 1e-8, where a sum never goes.
    """
    divisors = {"sum": 1, "token_mean": tokens, "constant": max(rollouts, 1) * (config.max_tokens or 1)}
    return float(max(divisors.get(loss.reduction, rollouts), 1))

"""Tokens by what they do to entropy: Clip-Cov and KL-Cov (Cui et al. 2025, arXiv 2505.22617).

Entropy falls by the covariance of log-prob and advantage (their eq. 6), and few tokens carry it:
cov_t = (logp_t - mean logp) · (A_t - mean A), over the tokens of one update that have an advantage. logp is the
sampler's: known before the forward pass, so that packs change nothing, and the policy's own where nothing has moved.
The authors take the policy's of the moment and count the tokens of dead groups, which their recipe leaves out of the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.grpo.curriculum import shuffled
from tasks.domain.grpo.types import LearnerConfig


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Of the T tokens of an update, float32. term_T multiplies a token's term; kl_T weighs |log-prob - behaviour|."""

    term_T: np.ndarray
    kl_T: np.ndarray


def covariances(logprobs_T: np.ndarray, advantages_T: np.ndarray) -> np.ndarray:
    """
    >>> covariances(np.array([-1.0, -3.0]), np.array([1.0, -1.0])).tolist()
    [1.0, 1.0]
    """
    return (logprobs_T - logprobs_T.mean()) * (advantages_T - advantages_T.mean())


def clip_cov(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, config: LearnerConfig, key: Sequence[object]
) -> TokenWeights:
    """Of the tokens between cov_low and cov_high a random `cov_share` of all (at least one) has no gradient (eq. 9,
    10). key: what the draw is a function of."""
    found_T = covariances(logprobs_T, advantages_T)
    eligible = np.flatnonzero((found_T > config.cov_low) & (found_T < config.cov_high))
    drawn = shuffled([str(i) for i in eligible], *key)[: _share(config, len(found_T))]
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
    kl_T[np.argsort(-found_T, kind="stable")[: _share(config, len(found_T))]] = config.cov_kl
    return TokenWeights(np.ones_like(kl_T), kl_T)


def _share(config: LearnerConfig, tokens: int) -> int:
    return max(1, int(config.cov_share * tokens))

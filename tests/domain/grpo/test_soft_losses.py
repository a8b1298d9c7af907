"""What stands beside clipping, by hand: a soft gate, weights of tokens, a rewarded entropy."""

from __future__ import annotations

import math

import pytest
import torch

from tasks.domain.grpo.losses import LOSSES, Tokens, summed
from tests.domain.grpo.test_losses import CONFIG, gradient


def test_sapo_by_hand() -> None:
    """Ratio 2, A = 1, τ = 1: slope of -4 σ(r - 1) is -4 σ(1) (1 - σ(1)) r. A = -1 has τ = 1.05: a gate that closes sooner."""
    at = math.log(2)
    for advantage, tau in ((1.0, 1.0), (-1.0, 1.05)):
        gate = 1 / (1 + math.exp(-tau))
        expected = -advantage * 4 * gate * (1 - gate) * 2
        assert gradient("sapo", [at], [0.0], torch.tensor([advantage])).item() == pytest.approx(expected, rel=1e-5)


def test_weighed_tokens_by_hand() -> None:
    """The first token has no term, the second is held to its behaviour by 3 |log-ratio|, the third is as it is."""
    at = torch.tensor([0.1, 0.1, 0.1], requires_grad=True)
    weights = torch.tensor([[0.0, 1.0, 1.0], [0.0, 3.0, 0.0]])
    t = Tokens(at, torch.zeros(3), torch.ones(3), torch.zeros(3), weights)
    summed(LOSSES["kl_cov"], t, None, CONFIG).backward()
    ratio = math.exp(0.1)
    assert at.grad is not None and at.grad.tolist() == pytest.approx([0.0, 3 - ratio, -ratio])


def test_entropy_is_rewarded_beside_each_term() -> None:
    entropy = torch.tensor([0.5, 2.0], requires_grad=True)
    t = Tokens(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.tensor([0, 0]), None, entropy)
    summed(LOSSES["grpo"], t, None, CONFIG, entropy_weight=0.25).backward()
    assert entropy.grad is not None and entropy.grad.tolist() == [-0.125, -0.125]

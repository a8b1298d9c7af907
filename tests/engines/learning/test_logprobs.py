from __future__ import annotations

import pytest
import torch

from tasks.engines.learning.policy import token_logprobs


def drawn(rows: int = 13, width: int = 8, vocabulary: int = 50) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, width, generator=g, requires_grad=True),
        torch.randn(vocabulary, width, generator=g),
        torch.randint(0, vocabulary, (rows,), generator=g),
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5])
@pytest.mark.parametrize("chunk", [1, 4, 13, 100])
def test_logprobs_entropy_and_gradient_are_those_of_a_full_softmax(chunk: int, temperature: float) -> None:
    hidden, weight, targets = drawn()
    logprobs, entropy = token_logprobs(hidden, weight, targets, chunk, temperature)
    slope = torch.randn(13, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad((logprobs * slope).sum(), hidden)
    full = torch.log_softmax(hidden @ weight.T / temperature, -1)
    (expected,) = torch.autograd.grad((full.gather(1, targets[:, None])[:, 0] * slope).sum(), hidden, retain_graph=True)
    assert torch.allclose(logprobs, full.gather(1, targets[:, None])[:, 0], atol=1e-5)
    assert torch.allclose(entropy, -(full.exp() * full).sum(-1), atol=1e-5)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.5])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_entropy_that_is_rewarded_has_the_gradient_of_a_full_softmax(chunk: int, temperature: float) -> None:
    """In float64, both gradients together; without `of_entropy` it has none."""
    hidden, weight, targets = drawn()
    wide = hidden.detach().double().requires_grad_()
    slope, pull = torch.randn(2, 13, generator=torch.Generator().manual_seed(1))
    logprobs, entropy = token_logprobs(hidden, weight, targets, chunk, temperature, of_entropy=True)
    (found,) = torch.autograd.grad((logprobs * slope).sum() + (entropy * pull).sum(), hidden)
    full = torch.log_softmax(wide @ weight.double().T / temperature, -1)
    whole = (full.gather(1, targets[:, None])[:, 0] * slope).sum() - ((full.exp() * full).sum(-1) * pull).sum()
    (expected,) = torch.autograd.grad(whole, wide)
    assert torch.allclose(found.double(), expected, atol=1e-5)
    assert not token_logprobs(hidden, weight, targets, chunk)[1].requires_grad


def test_nothing_as_wide_as_the_vocabulary_is_kept_for_the_backward_pass() -> None:
    kept: list[torch.Size] = []
    hidden, weight, targets = drawn(rows=16, vocabulary=1000)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.shape), t)[1], lambda t: t):
        token_logprobs(hidden, weight, targets, 4)
    assert kept == [torch.Size([16, 8])]


def test_a_sure_token_keeps_its_small_gradient_in_bfloat16() -> None:
    """p = 0.9991 rounds to 1 in bfloat16; 1 - p does not round to 0."""
    hidden = torch.tensor([[7.0, 0.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    logprobs, _ = token_logprobs(hidden, torch.eye(3, dtype=torch.bfloat16), torch.tensor([0]), 8)
    logprobs.sum().backward()
    exact = torch.tensor([1.0, 0.0, 0.0]) - torch.tensor([7.0, 0.0, 0.0]).softmax(-1)
    assert hidden.grad is not None
    assert torch.allclose(hidden.grad[0].float(), exact, rtol=0.01, atol=0)

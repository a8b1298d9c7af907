from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.losses import LOSSES, clipped, divisor, loss_for
from tasks.domain.grpo.types import LearnerConfig

CONFIG = LearnerConfig(
    steps=1, groups_per_step=1, group_size=2, learning_rate=1.0, lora_rank=1, lora_alpha=1, max_tokens=100
)
ADVANTAGES = torch.tensor([0.5, 0.5, -1.5, -1.5])


def gradient(
    name: str, logprobs: list[float], behaviour: list[float], advantages: torch.Tensor = ADVANTAGES
) -> torch.Tensor:
    logprobs_T = torch.tensor(logprobs, requires_grad=True)
    LOSSES[name].term(logprobs_T, torch.tensor(behaviour), advantages, CONFIG).sum().backward()
    assert logprobs_T.grad is not None
    return logprobs_T.grad


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_is_reinforce_where_nothing_has_moved(name: str) -> None:
    same = [-1.0, -2.0, -0.5, -3.0]
    assert torch.equal(gradient(name, same, same), -ADVANTAGES)


def test_importance_sampling_by_hand() -> None:
    """d/dlogp of -exp(logp - b)·A = -ratio·A; ratios 2 and 1/2."""
    two = torch.log(torch.tensor(2.0)).item()
    assert gradient(
        "importance_sampling", [two, -two], [0.0, 0.0], torch.tensor([1.0, -1.0])
    ).tolist() == pytest.approx([-2.0, 0.5])


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(1.5, 1.0, 0.0), (1.5, -1.0, 1.5), (0.5, 1.0, -0.5), (0.5, -1.0, 0.0), (1.1, 1.0, -1.1)],
)
def test_ppo_stops_only_where_the_ratio_has_gone_far_enough(ratio: float, advantage: float, slope: float) -> None:
    at = torch.log(torch.tensor(ratio)).item()
    assert gradient("ppo", [at], [0.0], torch.tensor([advantage])).item() == pytest.approx(slope, abs=1e-6)


def test_dapo_clips_upward_later() -> None:
    wide = replace(CONFIG, clip_low=0.2, clip_high=0.28)
    at = torch.tensor([1.25]).log().requires_grad_()
    clipped(at, torch.zeros(1), torch.ones(1), wide).sum().backward()
    assert at.grad is not None and at.grad.item() == pytest.approx(-1.25)


@pytest.mark.parametrize(("name", "cap"), [("cispo", 1.2), ("tis", 2.0)])
def test_capped_weights_keep_a_gradient(name: str, cap: float) -> None:
    at = torch.log(torch.tensor(5.0)).item()
    assert gradient(name, [at], [0.0], torch.tensor([1.0])).item() == pytest.approx(-cap)


def test_divisors() -> None:
    found = {n: divisor(loss, CONFIG, trained_tokens=50, rollouts=4) for n, loss in LOSSES.items()}
    assert found == {"importance_sampling": 1, "ppo": 1, "tis": 1, "dapo": 50, "cispo": 50, "dr_grpo": 400, "rloo": 4}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"loss": "grpo"}, "unknown loss 'grpo'"),
        ({"loss": "rloo"}, "defined with advantage leave_one_out"),
        ({"loss": "dr_grpo", "max_tokens": None}, "divides by max_tokens"),
    ],
)
def test_settings_that_do_not_go_together(wrong: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        loss_for(replace(CONFIG, **wrong))


def test_bandit_gradient_is_the_policy_gradient() -> None:
    """Three arms, softmax policy: over all actions weighted by the behaviour policy, the importance-sampled loss has the
    gradient of -E[reward], p_i (r_i - p·r), wherever the behaviour policy stands."""
    logits = torch.tensor([0.3, -0.7, 1.1], requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 0.4])
    behaviour = torch.tensor([0.2, 0.5, 0.3])
    terms = LOSSES["importance_sampling"].term(logits.log_softmax(0), behaviour.log(), rewards - 0.6, CONFIG)
    (behaviour * terms).sum().backward()
    p = logits.detach().softmax(0)
    expected = -p * (rewards - (p * rewards).sum())
    assert logits.grad is not None and torch.allclose(logits.grad, expected, atol=1e-6)

"""Packed log-probs and gradients are those of one rollout at a time through plain attention."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import TrainRollout
from tasks.engines.learning.lora import LoraModule, gated, gated_backward, merged_mlp
from tasks.engines.learning.policy import Execution, Policy, token_logprobs
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts, shifted

CONFIG = LearnerConfig(steps=1, groups_per_step=3, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=8)
PROBLEMS = ("a", "b", "c")


def grouped(rollouts: list[TrainRollout]) -> dict[str, list[TrainRollout]]:
    groups: dict[str, list[TrainRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    return groups


def policy_of(base: Path, config: LearnerConfig = CONFIG, execution: Execution | None = None) -> Policy:
    return shifted(Policy(base, config, execution or Execution(device="cpu")))


def gradient(
    base: Path, rollouts: list[TrainRollout], config: LearnerConfig = CONFIG, budget: int = 8192
) -> torch.Tensor:
    policy = policy_of(base, config)
    Updater(policy, config, budget).gradient(grouped(rollouts), Clock())
    return policy.lora.grad.clone()


@pytest.mark.parametrize("budget", [1, 30, 60, 8192])
def test_gradient_does_not_depend_on_packs(tiny_base: Path, budget: int) -> None:
    rollouts = random_rollouts(PROBLEMS, 4, seed=2)
    whole, cut = gradient(tiny_base, rollouts), gradient(tiny_base, rollouts, budget=budget)
    assert torch.linalg.vector_norm(whole) > 1
    assert torch.linalg.vector_norm(cut - whole) <= 1e-5 * torch.linalg.vector_norm(whole)


def test_masking_a_truncated_rollout_leaves_the_others_gradients_alone(tiny_base: Path) -> None:
    """The masked rollout counts in its group's mean and nowhere else."""
    config = replace(CONFIG, truncated="mask")
    rollouts = random_rollouts(("a",), 4, seed=6)
    long = [replace(rollouts[0], truncated=True), *rollouts[1:]]
    other = [replace(long[0], token_ids=[5, 6, 7], logprobs_T=np.zeros(3, np.float32)), *rollouts[1:]]
    assert torch.equal(gradient(tiny_base, long, config), gradient(tiny_base, other, config))
    assert not torch.equal(gradient(tiny_base, long), gradient(tiny_base, long, config))


def test_layers_of_packs_that_do_not_fit_are_recomputed_and_no_others(tiny_base: Path) -> None:
    """Of packs of several sizes those above `kept_rows`: forward passes of a layer are one a pack, and one more where it
    is recomputed."""
    rollouts = grouped(random_rollouts(PROBLEMS, 4, seed=8))
    policy = policy_of(tiny_base, execution=Execution(device="cpu", checkpointing="on"))
    updater, passes = Updater(policy, CONFIG, 48), list[int]()
    policy.body.layers[0].mlp.register_forward_pre_hook(lambda module, given: passes.append(given[0].shape[-2]))
    updater.gradient(rollouts, Clock())
    sizes = sorted(set(passes))
    assert len(sizes) > 1 and passes.count(sizes[-1]) % 2 == 0
    packs = {rows: passes.count(rows) // 2 for rows in sizes}
    policy.kept_rows = sizes[-2]
    passes.clear()
    updater.gradient(rollouts, Clock())
    assert {rows: passes.count(rows) for rows in sizes} == packs | {sizes[-1]: 2 * packs[sizes[-1]]}


# The GPU's fused layers, in float64 on the CPU, against the layers that they stand for.


def layers(draw: torch.Generator) -> tuple[Any, Any, Any]:
    made = []
    for width_in, width_out in ((6, 10), (6, 10), (10, 6)):
        linear = nn.Linear(width_in, width_out, bias=False).requires_grad_(False)
        linear.weight.copy_(torch.randn(width_out, width_in, generator=draw))
        a, b = torch.randn(3, width_in, generator=draw), torch.randn(width_out, 3, generator=draw)
        module = LoraModule(linear, a, b, 0.5, merge=True)
        module.merge()
        module.a.grad, module.b.grad = torch.zeros_like(a), torch.zeros_like(b)
        made.append(module)
    return made[0], made[1], made[2]


def gradients(of: tuple[Any, Any, Any], x: Tensor) -> list[Tensor]:
    assert x.grad is not None
    return [x.grad, *(m.grad for layer in of for m in (layer.a, layer.b))]


@pytest.mark.parametrize("backward_passes", [1, 3])
def test_a_merged_mlp_is_its_three_merged_layers(backward_passes: int) -> None:
    """Also what several packs add up, and that an input without a gradient gets none."""
    draw = torch.Generator().manual_seed(1)
    fused, apart = layers(torch.Generator().manual_seed(2)), layers(torch.Generator().manual_seed(2))
    x_fused = torch.randn(1, 20, 6, generator=draw).requires_grad_()
    x_apart = x_fused.detach().clone().requires_grad_()
    slope = torch.randn(1, 20, 6, generator=draw)
    for _ in range(backward_passes):
        out = merged_mlp(x_fused, fused, (gated, gated_backward))
        gate, up, down = apart
        expected = down(gated(gate(x_apart), up(x_apart)))
        assert torch.allclose(out, expected)
        (out * slope).sum().backward()
        (expected * slope).sum().backward()
    for one, other in zip(gradients(fused, x_fused), gradients(apart, x_apart), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)
    frozen = x_fused.detach()
    merged_mlp(frozen, fused, (gated, gated_backward)).sum().backward()
    assert frozen.grad is None


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

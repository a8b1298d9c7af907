"""Gradients of the learner against float64, one rollout at a time, with the adapter inside the weights. The formulas are
written out for a whole rollout, where the learner works by token."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.domain.grpo.learner_config import ATTENTION, LearnerConfig
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack
from tasks.domain.grpo.steps import TrainRollout
from tasks.engines.hardware import Execution
from tasks.engines.learning.policy import Policy
from tasks.engines.learning.update import Clock, Updater
from tasks.engines.model_files import num_experts, read_config
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.engines.sampling.test_serving import TARGETS, moe_config
from tests.tiny_model import write_tiny_mixture

DOWN = (*ATTENTION, "down_proj")
Tensors = Mapping[str, torch.Tensor]


def sampled_by(policy: Policy, rollouts: list[TrainRollout], noise: float) -> list[TrainRollout]:
    """Behaviour log-probs are the policy's own, but for noise of this size."""
    rng, drawn = np.random.default_rng(0), []
    for r in rollouts:
        alone = PromptGroup(r.prompt_ids, [Trajectory(0, r.token_ids, r.logprobs_T, 1.0)])
        logprobs = policy.logprobs(build_pack([alone]))[0].detach().numpy()
        drawn.append(replace(r, logprobs_T=(logprobs + rng.normal(0, noise, len(logprobs))).astype(np.float32)))
    return drawn


def whole_weights(frozen: Tensors, matrices: Tensors, alpha: int) -> Tensors:
    """W + alpha / r · B·A, of experts one by one."""

    def product(module: str) -> torch.Tensor:
        a, b = matrices[f"{module}.lora_A.weight"], matrices[f"{module}.lora_B.weight"]
        return alpha / len(a) * b @ a

    adapted = {name.partition(".lora_")[0] for name in matrices}
    found = {**frozen} | {f"{m}.weight": frozen[f"{m}.weight"] + product(m) for m in adapted if ".experts." not in m}
    for layer in {m.partition(".experts.")[0] + ".experts" for m in adapted if ".experts." in m}:
        each = range(len(frozen[f"{layer}.down_proj"]))
        if f"{layer}.0.gate_proj" in adapted:
            gate_up = [torch.cat([product(f"{layer}.{e}.gate_proj"), product(f"{layer}.{e}.up_proj")]) for e in each]
            found[f"{layer}.gate_up_proj"] = frozen[f"{layer}.gate_up_proj"] + torch.stack(gate_up)
        down = [product(f"{layer}.{e}.down_proj") for e in each]
        found[f"{layer}.down_proj"] = frozen[f"{layer}.down_proj"] + torch.stack(down)
    return found


def float64_gradients(
    base: Path, policy: Policy, groups: Mapping[str, Sequence[TrainRollout]], config: LearnerConfig
) -> Tensors:
    """By transformers' own layers, one expert at a time."""
    from transformers import AutoModelForCausalLM

    how = {"experts_implementation": "eager"} if num_experts(read_config(base)) else {}
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, **how)
    views = policy.lora.views(policy.lora.master)
    matrices = {name: view.detach().double().requires_grad_() for name, view in views.items()}
    frozen = {n: p.detach() for n, p in model.named_parameters()}
    weights = whole_weights(frozen, matrices, config.lora_alpha)

    def logprobs(r: TrainRollout, weights: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(Of the tokens, their entropies)."""
        ids = torch.tensor([[*r.prompt_ids, *r.token_ids]])
        logits = torch.func.functional_call(model, dict(weights), (ids,)).logits[0, len(r.prompt_ids) - 1 : -1]
        scores = torch.log_softmax(logits, -1)
        return scores.gather(1, torch.tensor(r.token_ids)[:, None])[:, 0], -(scores.exp() * scores).sum(-1)

    rollouts = [r for group in groups.values() for r in group]
    tokens, loss = sum(len(r.token_ids) for r in rollouts), torch.zeros((), dtype=torch.float64)
    for group in groups.values():
        right = np.array([float(r.correct) for r in group])
        advantages = right - right.mean()
        if config.advantage == "standardised" and right.std():
            advantages = advantages / right.std(ddof=1)
        for r, a in zip(group, advantages, strict=True):
            x, entropy = logprobs(r, weights)
            d = logprobs(r, frozen)[0] - x.detach()
            ratio = (x - torch.from_numpy(r.logprobs_T).double()).exp()
            s = ratio.prod() ** (1 / len(ratio))
            kl = torch.exp(d + x.detach() - x) - (d + x.detach() - x) - 1
            weight = ratio.detach().clamp(max=1.2)
            share, term = {
                "importance_sampling": (1.0, -ratio * a),
                "grpo": (1 / (len(rollouts) * len(x)), -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)),
                "gspo": (1 / (len(rollouts) * len(x)), -torch.minimum(s * a, s.clamp(0.8, 1.2) * a).expand(len(x))),
                "dapo": (1 / tokens, -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)),
                "cispo": (1 / tokens, -weight * a * x),
            }[config.loss]
            loss = loss + (share * (term + config.kl_weight * kl - config.entropy_weight * entropy)).sum()
    return dict(zip(matrices, torch.autograd.grad(loss, list(matrices.values())), strict=True))


def both(base: Path, policy: Policy, rollouts: list[TrainRollout], config: LearnerConfig) -> tuple[Tensors, Tensors]:
    """(The learner's gradients, float64's). Behaviour log-probs are near the policy's, so that ratios lie on both sides
    of the clip."""
    groups = grouped(sampled_by(policy, rollouts, noise=0.3))
    updater = Updater(policy, config, 8192)
    if config.kl_weight:
        updater.start = torch.zeros_like(policy.lora.work)
    updater.gradient(groups, Clock())
    return policy.lora.views(policy.lora.grad), float64_gradients(base, policy, groups, config)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, loss="gspo", kl_weight=0.05),
        replace(CONFIG, loss="grpo", advantage="standardised", kl_weight=0.1),
        replace(CONFIG, loss="dapo", entropy_weight=0.3),
        replace(CONFIG, loss="cispo"),
        CONFIG,
    ],
    ids=lambda c: c.loss,
)
def test_gradients_are_those_of_plain_float64(tiny_base: Path, config: LearnerConfig, merged: bool) -> None:
    """With a dead group among them: its tokens are divided by, and KL pulls at them."""
    rollouts = random_rollouts(PROBLEMS, 4, seed=11)
    rollouts = [replace(r, correct=True) if r.problem_id == "c" else r for r in rollouts]
    policy = policy_of(tiny_base, config, Execution(device="cpu", merged=merged))
    ours, theirs = both(tiny_base, policy, rollouts, config)
    assert ours.keys() == theirs.keys()
    whole = torch.cat([theirs[n].flatten() for n in ours])
    gap = torch.cat([ours[n].double().flatten() for n in ours]) - whole
    assert torch.linalg.vector_norm(whole) > 0
    # the learner's forward pass is float32; the formulas alone agree to 1e-9 (tests/domain/grpo/test_losses.py)
    assert torch.linalg.vector_norm(gap) <= 5e-6 * torch.linalg.vector_norm(whole)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights so large that a third of the gradient is the experts'."""
    shape = {"num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 3, "initializer_range": 0.2}
    return write_tiny_mixture(tmp_path_factory.mktemp("mixture"), **shape)


@pytest.mark.parametrize("merged", [False, True], ids=["beside", "merged"])
@pytest.mark.parametrize("targets", [*TARGETS, "down"])
def test_gradients_of_a_mixture_are_those_of_float64(mixture: Path, targets: str, merged: bool) -> None:
    """Matrix by matrix."""
    config = moe_config(targets) if targets in TARGETS else replace(moe_config("experts"), target_modules=DOWN)
    policy = policy_of(mixture, config, Execution(device="cpu", merged=merged))
    ours, theirs = both(mixture, policy, random_rollouts(PROBLEMS, 4, seed=11), config)
    assert len(ours) == 4 * 2 * (4 + 8 * {"attention": 0, "down": 1}.get(targets, 3))
    for name, gradient in theirs.items():
        size = torch.linalg.vector_norm(gradient)
        assert size > 0 and torch.linalg.vector_norm(ours[name].double() - gradient) <= 2e-5 * size, name

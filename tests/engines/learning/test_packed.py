"""Packed log-probs and gradients are those of one rollout at a time through plain attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack
from tasks.domain.grpo.steps import TrainRollout
from tasks.engines.learning.policy import Execution, Policy
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


def plain_logprobs(base: Path, policy: Policy, rollout: TrainRollout) -> torch.Tensor:
    """By transformers' own attention over the whole sequence and a full log-softmax, with LoRA through peft."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = base.parent / "plain"
    policy.lora.export(folder, base, torch.float32)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), str(folder))
    ids = torch.tensor([[*rollout.prompt_ids, *rollout.token_ids]])
    logprobs = torch.log_softmax(model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1].float(), -1)
    return logprobs.gather(1, torch.tensor(rollout.token_ids)[:, None])[:, 0]


def test_packed_logprobs_are_those_of_one_rollout_at_a_time(tiny_base: Path) -> None:
    rollouts = random_rollouts(PROBLEMS, 4, seed=1)
    policy = policy_of(tiny_base)
    groups = [
        PromptGroup(g[0].prompt_ids, [Trajectory(i, r.token_ids, r.logprobs_T, 1.0) for i, r in enumerate(g)])
        for g in grouped(rollouts).values()
    ]
    logprobs, entropy = policy.logprobs(build_pack(groups))
    expected = torch.cat([plain_logprobs(tiny_base, policy, r) for r in rollouts])
    assert torch.allclose(logprobs, expected, atol=1e-5, rtol=0)
    assert (entropy > 0).all() and (entropy <= np.log(64) + 1e-5).all()


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

"""Objectives in the loop: their state is resumed to the bit, their weights reach the tokens, their gradients are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.engines.learning.update import Clock, Updater
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import check_resumed, run, same, sample
from tests.engines.learning.test_packed import CONFIG, grouped, policy_of

EXPLORING = replace(LOOP, advantage="ucb_mean", bonus_gate="none", max_extra_groups=0, steps=5)
AIMED = replace(LOOP, entropy_weight=0.02, entropy_target=3.5, entropy_delta=0.01, steps=5)


def answering(plan: StepPlan) -> list[TrainRollout]:
    """Wrong rollouts answer one of three things; the pool of six problems comes round again."""
    return [
        replace(r, answer="correct" if r.correct else str((r.rollout + plan.step) % 3), trace_class=r.rollout // 2)
        for r in sample(plan)
    ]


OTHERS = (
    AIMED,
    replace(LOOP, loss="clip_cov", advantage="standardised", cov_low=0.1, cov_share=0.1),
    replace(LOOP, loss="sapo", advantage="darling_trace"),
    replace(LOOP, loss="dapo", advantage="gdpo", max_tokens=14, overlong_cache=6),
    replace(LOOP, advantage="reinforce_plus_plus"),
)


@pytest.mark.parametrize(
    "config",
    [
        EXPLORING,
        replace(LOOP, loss="kl_cov", advantage="standardised", minibatches=2, cov_share=0.1),
        *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS),
    ],
    ids=lambda c: f"{c.loss}-{c.advantage}",
)
def test_killed_and_resumed_is_the_undisturbed_run(tiny_base: Path, tmp_path: Path, config: LearnerConfig) -> None:
    """Weights, rows, diagnostics and what the objective remembers, wherever it is stopped."""
    check_resumed(tiny_base, tmp_path, config, range(1, 2 * config.steps, 3), lambda: answering)


def test_the_entropy_bonus_is_plain_autograds(tiny_base: Path) -> None:
    """Of all tokens of a step with a live group; the policy's gradient is the one with advantages less the one without."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    rollouts, config = random_rollouts(("a",), 4, seed=4), replace(CONFIG, entropy_weight=0.3)
    gradients = []
    for one in (config, CONFIG):
        policy = policy_of(tiny_base, one)
        Updater(policy, one, 30).gradient(grouped(rollouts), Clock())
        gradients.append({name: g.clone() for name, g in policy.lora.views(policy.lora.grad).items()})
    folder = tiny_base.parent / "entropy"
    policy.lora.export(folder, tiny_base, torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(tiny_base, dtype=torch.float64)
    model = PeftModel.from_pretrained(plain, str(folder), is_trainable=True, autocast_adapter_dtype=False).double()
    for r in rollouts:
        scores = model(torch.tensor([[*r.prompt_ids, *r.token_ids]])).logits[0, len(r.prompt_ids) - 1 : -1]
        log_p = torch.log_softmax(scores, -1)
        (0.3 * (log_p.exp() * log_p).sum()).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:
            key = name.removeprefix("base_model.model.").replace(".default", "")
            found = (gradients[0][key] - gradients[1][key]).double()
            gap = torch.linalg.vector_norm(found - parameter.grad)
            # the difference of two float32 gradients
            assert gap <= 1e-4 * torch.linalg.vector_norm(parameter.grad) + 1e-5


def test_a_token_budget_ends_a_training_and_its_last_adapter_stands_for_the_rest(
    tiny_base: Path, tmp_path: Path
) -> None:
    """Evaluated after steps 3 and 6 of 6: spent in step 4, so 6 is what 4 was; resumed to the bit."""
    long = replace(LOOP, steps=6, eval_every=3)
    tokens = np.cumsum([row["num_tokens"] for row in run(tiny_base, tmp_path / "long", long).steps])
    config = replace(long, token_budget=int(tokens[3]))
    whole = check_resumed(tiny_base, tmp_path, config, (2, 5, 8))
    assert [row["step"] for row in whole.steps] == [1, 2, 3, 4]
    assert [f.name for f in whole.kept_adapters] == ["step-0003", "step-0006"]
    four = run(tiny_base, tmp_path / "four", replace(long, steps=4))
    assert same(whole.kept_adapters[-1], four.kept_adapters[-1]) and same(
        whole.kept_adapters[-1], four.kept_adapters[-1]
    )

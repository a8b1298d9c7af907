"""What may not spoil an adapter: a wild log-prob, a gradient that is not finite, a step without a live group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.engines.learning.update import Clock
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import run, sample
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped
from tests.engines.learning.test_updates import equal, kept, updater_of


def with_logprob(rollouts: list[TrainRollout], value: float) -> list[TrainRollout]:
    """One behaviour log-prob of the first long rollout is this."""
    first = next(i for i, r in enumerate(rollouts) if len(r.token_ids) > 3)
    changed = rollouts[first].logprobs_T.copy()
    changed[1] = value
    return [*rollouts[:first], replace(rollouts[first], logprobs_T=changed), *rollouts[first + 1 :]]


def test_one_behaviour_log_prob_of_minus_120_leaves_the_weights_finite(tiny_base: Path) -> None:
    """Its token has no gradient, as one that is unknown has none; the others' is what it was."""
    rollouts = random_rollouts(PROBLEMS, 4, seed=7)
    found = {}
    for name, value in (("far", -120.0), ("unknown", np.nan)):
        updater = updater_of(tiny_base)
        row = updater.update(grouped(with_logprob(rollouts, value)), Clock())
        found[name] = row | {"weights": updater.policy.lora.master.clone()}
    assert found["far"]["weights"].isfinite().all()
    assert torch.allclose(found["far"]["weights"], found["unknown"]["weights"], atol=1e-7)
    assert (found["far"]["bounded_tokens"], found["unknown"]["bounded_tokens"]) == (1, 0)
    assert (found["far"]["masked_tokens"], found["unknown"]["masked_tokens"]) == (0, 1)
    assert found["far"]["grad_norm"] == pytest.approx(found["unknown"]["grad_norm"], rel=1e-5)
    assert all(np.isfinite(v) for v in found["far"].values() if isinstance(v, float))


def overflowing(config: LearnerConfig) -> LearnerConfig:
    """With a weight of tags that nobody may ask for."""
    made = replace(config, rewards=(RewardTerm(name="correct"), RewardTerm(name="tag")))
    object.__setattr__(made.rewards[1], "weight", 1e30)
    return made


def test_a_gradient_that_is_not_finite_skips_the_update_and_is_counted(tiny_base: Path) -> None:
    """Advantages of 1e30 are finite; the gradient's square, which Adam keeps, is not."""
    good, bad = (grouped(random_rollouts(PROBLEMS, 4, seed)) for seed in (1, 2))
    mixed = {p: [replace(r, tag_valid=i != 1) for i, r in enumerate(g)] for p, g in bad.items()}
    config = overflowing(CONFIG)
    updater = updater_of(tiny_base, config)
    updater.update(good, Clock())
    before = kept(updater)
    row = updater.update(mixed, Clock())
    assert equal(kept(updater), before)
    assert (row["updates"], row["skipped_updates"], row["trained_tokens"]) == (0, 1, 0)
    assert row["grad_norm"] is row["loss"] is row["entropy"] is None
    assert updater.update(good, Clock())["updates"] == 1 and updater.policy.lora.master.isfinite().all()


def test_three_gradients_that_are_not_finite_stop_the_training(tiny_base: Path, tmp_path: Path) -> None:
    """In steps 2, 3 and 5 of 6; the good weights of before are kept, and going on says the same before it samples."""
    asked: list[int] = []

    def spoilt(plan: StepPlan) -> list[TrainRollout]:
        asked.append(plan.step)
        bad = plan.step in (2, 3, 5)
        return [replace(r, tag_valid=not (bad and r.rollout == 1)) for r in sample(plan)]

    config = overflowing(replace(LOOP, steps=6))
    with pytest.raises(UserError, match=r"3 gradients were not finite \(steps 2, 3, 5\)"):
        run(tiny_base, tmp_path, config, sample=spoilt)
    assert asked == [1, 2, 3, 4, 5]
    states = sorted((tmp_path / "checkpoints").glob("step-*/state.safetensors"))
    assert [p.parent.name for p in states] == ["step-0004", "step-0005"]
    assert states[0].read_bytes() == states[1].read_bytes()
    with pytest.raises(UserError, match="3 gradients were not finite"):
        run(tiny_base, tmp_path, config, sample=spoilt)
    assert asked == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, weight_decay=0.1), replace(CONFIG, kl_weight=0.1)])
def test_a_step_without_a_live_group_leaves_weights_and_moments(tiny_base: Path, config: LearnerConfig) -> None:
    live = grouped(random_rollouts(PROBLEMS, 4, seed=1))
    dead = {p: [replace(r, correct=True) for r in g] for p, g in live.items()}
    updater = updater_of(tiny_base, config)
    updater.start_here()
    assert updater.update(live, Clock())["updates"] == 1
    before = kept(updater)
    assert before["exp_avg"].any()
    row = updater.update(dead, Clock())
    assert equal(kept(updater), before)
    assert (row["updates"], row["skipped_updates"], row["live_groups"], row["trained_tokens"]) == (0, 0, 0.0, 0)

"""Generator and critic on one base: each is what a training of its own on its own rollouts would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.steps import StepPlan, TrainRollout
from tasks.engines.learning.learner import Execution
from tasks.engines.learning.update import Clock, TwoAgents, Updater, criticised, updater_for
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import check_resumed, same
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.engines.learning.test_updates import kept

ON_CPU = Execution(device="cpu")
AGENTS = replace(LOOP, advantage="multi_agent", steps=5)
AIMED = replace(AGENTS, entropy_weight=0.02, entropy_target=3.5, entropy_delta=0.01, kl_weight=0.1, minibatches=2)


def criticising(drafts: Sequence[TrainRollout], seed: int) -> list[TrainRollout]:
    """Drafts with critiques of other tokens, right where a third of them is; each fifth draft has none."""
    if not drafts:
        return []
    names = tuple(dict.fromkeys(r.problem_id for r in drafts))
    others = random_rollouts(names, len(drafts) // len(names), seed + 1000)
    return [
        replace(draft, critique=replace(other, correct=i % 3 == 0, of_right_draft=draft.correct) if i % 5 else None)
        for i, (draft, other) in enumerate(zip(drafts, others, strict=True))
    ]


def answering(plan: StepPlan) -> list[TrainRollout]:
    return criticising(random_rollouts(plan.problem_ids, plan.group_size, plan.step), plan.step)


def trained(
    base: Path, config: LearnerConfig, updates: int = 3, execution: Execution | None = None
) -> tuple[TwoAgents, list[dict]]:
    policy = policy_of(base, config, execution)
    updater = updater_for(policy, config, 8192)
    assert isinstance(updater, TwoAgents)
    updater.start_here()
    steps = [grouped(criticising(random_rollouts(PROBLEMS, 4, seed=s), s)) for s in range(updates)]
    return updater, [updater.update(groups, Clock(), s + 1) for s, groups in enumerate(steps)]


@pytest.mark.parametrize("pull", [{}, {"kl_weight": 0.1}, {"entropy_target": 3.5, "entropy_weight": 0.01}])
@pytest.mark.parametrize("execution", [ON_CPU, replace(ON_CPU, dtype="bfloat16", merged=True)], ids=["", "merged"])
def test_each_agent_is_trained_as_if_alone(tiny_base: Path, pull: dict, execution: Execution) -> None:
    """The same bits as a training of the drafts and one of the critiques, of which neither knows the other; also where
    the learner multiplies merged weights, as it does beside a sampler that serves them."""
    config = replace(CONFIG, advantage="multi_agent", learning_rate=1e-2, **pull)
    both, _ = trained(tiny_base, config, execution=execution)
    steps = [grouped(criticising(random_rollouts(PROBLEMS, 4, seed=s), s)) for s in range(3)]
    found = kept(both)
    for prefix, groups_of in (("", lambda groups: groups), ("critic_", criticised)):
        alone = Updater(policy_of(tiny_base, config, execution), config, 8192)
        alone.start_here()
        for step, groups in enumerate(steps, 1):
            alone.update(groups_of(groups), Clock(), step)
        expected = kept(alone)
        assert all(torch.equal(found[prefix + name], tensor) for name, tensor in expected.items())
    assert not torch.equal(found["weights"], found["critic_weights"])


@pytest.mark.parametrize(
    "config", [AGENTS, *(pytest.param(one, marks=pytest.mark.slow) for one in (AIMED, replace(AGENTS, staleness=1)))]
)
def test_killed_and_resumed_is_the_undisturbed_run(tiny_base: Path, tmp_path: Path, config: LearnerConfig) -> None:
    """Both adapters, rows, diagnostics, and what each agent remembers."""
    whole = check_resumed(tiny_base, tmp_path, config, range(1, 2 * config.steps, 3), lambda: answering)
    assert {"critic_updates", "critic_mended", "draft_right"} <= {row["metric"] for row in whole.diagnostics}
    assert not same(whole.kept_adapters[-1], whole.kept_adapters[-1] / "critic")

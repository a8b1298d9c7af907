"""The updates of a step: their gradients against plain float64, and the reuse of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm
from tasks.domain.grpo.steps import StepPlan, TrainRollout, update_groups
from tasks.domain.scaffolds import PANEL
from tasks.engines.hardware import Hardware
from tasks.engines.learning.learner import Execution
from tasks.engines.learning.policy import Policy
from tasks.engines.learning.update import Clock, TwoAgents, Updater, criticised, updater_for
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import STALE, Book, check_resumed, equal, run, same, sample
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.tiny_model import write_tiny_model

Sampler = Callable[[StepPlan], list[TrainRollout]]
REUSE = replace(CONFIG, loss="ppo", minibatches=2, epochs=2)


def updater_of(base: Path, config: LearnerConfig = CONFIG) -> Updater:
    return Updater(policy_of(base, config), config, 8192)


# ----------------------------------------------------------------------------------------------- reuse of a batch


def test_minibatches_and_epochs_are_updates_one_after_the_other(tiny_base: Path) -> None:
    """The same bits as an update for each part by hand; from the second on the ratio is not 1."""
    groups = grouped(random_rollouts(PROBLEMS, 4, seed=3))
    together, apart = updater_of(tiny_base, REUSE), updater_of(tiny_base, replace(REUSE, minibatches=1, epochs=1))
    row = together.update(groups, Clock(), step=5)
    rows = [apart.update({p: groups[p] for p in part}, Clock()) for part in update_groups(PROBLEMS, REUSE, 5)]
    assert equal(together.tensors(), apart.tensors())
    assert (row["updates"], row["trained_tokens"]) == (4, sum(r["trained_tokens"] for r in rows))
    assert row["num_tokens"] * 2 == row["trained_tokens"]
    assert row["grad_norm"] == pytest.approx(np.mean([r["grad_norm"] for r in rows]))
    assert row["ratio_max"] == max(r["ratio_max"] for r in rows)


# ---------------------------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.4])
def test_the_learner_reads_what_was_sampled_at_this_temperature(tmp_path: Path, temperature: float) -> None:
    """Behaviour log-probs of the sampler are those of the learner: every ratio is 1."""
    base = write_tiny_model(tmp_path / "model")
    generator = TransformersGenerator(base, Hardware(device="cpu"))
    prompt = generator.encode(replace(PANEL, template="{problem}"), "1 + 1 =")
    how = Decoding(max_tokens=12, temperature=temperature, top_p=1.0, stop=())
    done = list(generator.generate([Request(i, tuple(prompt), i, how) for i in range(4)], None))
    group = [
        TrainRollout("p", "s", c.key, prompt, c.token_ids, c.logprobs_T, c.key % 2 == 0, True, False) for c in done
    ]
    policy = Policy(base, CONFIG, Execution(device="cpu"), temperature)
    row = Updater(policy, CONFIG, 8192).update({"p": group}, Clock())
    assert row["ratio_mean"] == pytest.approx(1.0, abs=1e-4) and row["ratio_max"] == pytest.approx(1.0, abs=1e-3)
    at_one = Updater(Policy(base, CONFIG, Execution(device="cpu")), CONFIG, 8192).update({"p": group}, Clock())
    assert temperature == 1 or at_one["ratio_max"] > 1.02


# Objectives in the loop: their state is resumed to the bit, their weights reach the tokens, their gradients are right.


EXPLORING = replace(LOOP, advantage="ucb_mean", bonus_gate="none", max_extra_groups=0, steps=5)
AIMED = replace(LOOP, entropy_weight=0.02, entropy_target=3.5, entropy_delta=0.01, steps=5)


def answering(plan: StepPlan) -> list[TrainRollout]:
    """Wrong rollouts answer one of three things; the pool of six problems comes round again."""
    return [
        replace(r, answer="correct" if r.correct else str((r.rollout + plan.step) % 3), trace_class=r.rollout // 2)
        for r in sample(plan)
    ]


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
    assert same(whole.kept_adapters[-1], four.kept_adapters[-1])


# Generator and critic on one base: each is what a training of its own on its own rollouts would be.


ON_CPU = Execution(device="cpu")
AGENTS = replace(LOOP, advantage="multi_agent", steps=5)
TWO_AGENTS_AIMED = replace(
    AGENTS, entropy_weight=0.02, entropy_target=3.5, entropy_delta=0.01, kl_weight=0.1, minibatches=2
)


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


def two_agents_answering(plan: StepPlan) -> list[TrainRollout]:
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
    found = both.tensors()
    for prefix, groups_of in (("", lambda groups: groups), ("critic_", criticised)):
        alone = Updater(policy_of(tiny_base, config, execution), config, 8192)
        alone.start_here()
        for step, groups in enumerate(steps, 1):
            alone.update(groups_of(groups), Clock(), step)
        expected = alone.tensors()
        assert all(torch.equal(found[prefix + name], tensor) for name, tensor in expected.items())
    assert not torch.equal(found["weights"], found["critic_weights"])


LATE = replace(ON_CPU, async_checkpoints=True)
OFTEN = [
    (LOOP, lambda: sample, ON_CPU),
    (EXPLORING, lambda: answering, ON_CPU),
    (replace(LOOP, loss="kl_cov", advantage="standardised", minibatches=2, cov_share=0.1), lambda: answering, ON_CPU),
    (AGENTS, lambda: two_agents_answering, ON_CPU),
    (STALE, lambda: Book().sample, ON_CPU),
    (STALE, lambda: Book().sample, LATE),
]
SELDOM = [
    (AIMED, lambda: answering, ON_CPU),
    (replace(LOOP, loss="clip_cov", advantage="standardised", cov_low=0.1, cov_share=0.1), lambda: answering, ON_CPU),
    (replace(LOOP, loss="sapo", advantage="darling_trace"), lambda: answering, ON_CPU),
    (replace(LOOP, loss="dapo", advantage="gdpo", max_tokens=14, overlong_cache=6), lambda: answering, ON_CPU),
    (replace(LOOP, advantage="reinforce_plus_plus"), lambda: answering, ON_CPU),
    (TWO_AGENTS_AIMED, lambda: two_agents_answering, ON_CPU),
    (replace(AGENTS, staleness=1), lambda: two_agents_answering, ON_CPU),
    (replace(STALE, max_extra_groups=4), lambda: Book().sample, LATE),
]


@pytest.mark.parametrize(
    ("config", "sampler", "execution"),
    [*OFTEN, *(pytest.param(*one, marks=pytest.mark.slow) for one in SELDOM)],
    ids=lambda one: f"{one.loss}-{one.advantage}" if isinstance(one, LearnerConfig) else "",
)
def test_killed_and_resumed_is_the_undisturbed_run(
    tiny_base: Path, tmp_path: Path, config: LearnerConfig, sampler: Callable[[], Sampler], execution: Execution
) -> None:
    """Weights, rows, diagnostics and what the objective remembers, wherever it is stopped."""
    stops = range(1, 2 * config.steps + 1, 3 if config.advantage != "centred" else 1)
    check_resumed(tiny_base, tmp_path, config, stops, sampler, execution=execution)


# What may not spoil an adapter: a wild log-prob, a gradient that is not finite, a step without a live group.


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
    before = updater.tensors()
    row = updater.update(mixed, Clock())
    assert equal(updater.tensors(), before)
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
    before = updater.tensors()
    assert before["exp_avg"].any()
    row = updater.update(dead, Clock())
    assert equal(updater.tensors(), before)
    assert (row["updates"], row["skipped_updates"], row["live_groups"], row["trained_tokens"]) == (0, 0, 0.0, 0)

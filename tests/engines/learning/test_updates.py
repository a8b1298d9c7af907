"""The updates of a step: their gradients against plain float64, and the reuse of a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import LOSSES
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack
from tasks.domain.grpo.steps import TrainRollout, update_groups
from tasks.engines.hardware import Hardware
from tasks.engines.learning.learner import Execution
from tasks.engines.learning.policy import Policy
from tasks.engines.learning.update import Clock, Updater
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.engines.conftest import random_rollouts
from tests.engines.learning.test_learner import CONFIG as LOOP
from tests.engines.learning.test_learner import check_resumed, run
from tests.engines.learning.test_packed import CONFIG, PROBLEMS, grouped, policy_of
from tests.tiny_model import write_tiny_model

REUSE = replace(CONFIG, loss="ppo", minibatches=2, epochs=2)


def updater_of(base: Path, config: LearnerConfig = CONFIG) -> Updater:
    return Updater(policy_of(base, config), config, 8192)


def kept(updater: Updater) -> dict[str, torch.Tensor]:
    return updater.tensors()


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def sampled_by(policy: Policy, rollouts: list[TrainRollout], noise: float) -> list[TrainRollout]:
    """Behaviour log-probs are the policy's own, but for noise of this size."""
    rng, drawn = np.random.default_rng(0), []
    for r in rollouts:
        alone = PromptGroup(r.prompt_ids, [Trajectory(0, r.token_ids, r.logprobs_T, 1.0)])
        logprobs = policy.logprobs(build_pack([alone]))[0].detach().numpy()
        drawn.append(replace(r, logprobs_T=(logprobs + rng.normal(0, noise, len(logprobs))).astype(np.float32)))
    return drawn


# ------------------------------------------------------------------------------------------------- against float64


def float64_gradient(base: Path, policy: Policy, groups: dict, config: LearnerConfig) -> dict[str, torch.Tensor]:
    """transformers and peft in float64, one rollout at a time; the reference has its adapter switched off. The formulas
    are written out for a whole rollout, where the learner works by token."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = base.parent / "float64"
    policy.lora.export(folder, base, torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    model = PeftModel.from_pretrained(plain, str(folder), is_trainable=True, autocast_adapter_dtype=False).double()

    def logprobs(r: TrainRollout) -> torch.Tensor:
        ids = torch.tensor([[*r.prompt_ids, *r.token_ids]])
        scores = torch.log_softmax(model(ids).logits[0, len(r.prompt_ids) - 1 : -1], -1)
        return scores.gather(1, torch.tensor(r.token_ids)[:, None])[:, 0]

    rollouts = [r for group in groups.values() for r in group]
    tokens = sum(len(r.token_ids) for r in rollouts)
    for group in groups.values():
        right = np.array([float(r.correct) for r in group])
        advantages = right - right.mean()
        if config.advantage == "standardised" and right.std():
            advantages = advantages / right.std(ddof=1)
        for r, a in zip(group, advantages, strict=True):
            x = logprobs(r)
            with torch.no_grad(), model.disable_adapter():
                d = logprobs(r) - x.detach()
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
            (share * (term + config.kl_weight * kl)).sum().backward()
    named = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    return {n.removeprefix("base_model.model.").replace(".default", ""): g for n, g in named.items() if g is not None}


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, loss="grpo", advantage="standardised"),
        replace(CONFIG, loss="gspo"),
        replace(CONFIG, loss="gspo", kl_weight=0.05),
        replace(CONFIG, loss="grpo", advantage="standardised", kl_weight=0.1),
        replace(CONFIG, loss="dapo"),
        replace(CONFIG, loss="cispo"),
        replace(CONFIG, kl_weight=0.3),
    ],
    ids=lambda c: f"{c.loss}-kl{c.kl_weight:g}",
)
def test_gradients_are_those_of_plain_float64(tiny_base: Path, config: LearnerConfig) -> None:
    """With a dead group among them: its tokens are divided by, and KL pulls at them. Behaviour log-probs are near the
    policy's, so that ratios lie on both sides of the clip."""
    rollouts = random_rollouts(PROBLEMS, 4, seed=11)
    rollouts = [replace(r, correct=True) if r.problem_id == "c" else r for r in rollouts]
    policy = policy_of(tiny_base, replace(config, kl_weight=0.0))
    groups = grouped(sampled_by(policy, rollouts, noise=0.3))
    updater = Updater(policy, config, 8192)
    if config.kl_weight:
        updater.start = torch.zeros_like(policy.lora.work)
    updater.gradient(groups, Clock())
    ours = policy.lora.views(policy.lora.grad)
    theirs = float64_gradient(tiny_base, policy, groups, config)
    assert ours.keys() == theirs.keys()
    whole = torch.cat([theirs[n].flatten() for n in ours])
    gap = torch.cat([ours[n].double().flatten() for n in ours]) - whole
    assert torch.linalg.vector_norm(whole) > 0
    # the learner's forward pass is float32; the formulas alone agree to 1e-9 (tests/domain/grpo/test_losses.py)
    assert torch.linalg.vector_norm(gap) <= 5e-6 * torch.linalg.vector_norm(whole)


def test_losses_are_one_direction_but_for_means_over_a_rollouts_tokens(tiny_base: Path) -> None:
    """Where the behaviour policy is the policy itself: the cosine between gradients is 1 or well below (docs/training.md).
    A new loss needs no entry here."""
    rollouts = random_rollouts(PROBLEMS, 4, seed=12)
    needed = {name: loss.needs_advantage or "centred" for name, loss in LOSSES.items()}
    found = {}
    for name, advantage in needed.items():
        # staleness: the ratio is 1 here all the same; no token is weighed
        unweighed = {"cov_low": 1e5, "cov_high": 1e6, "cov_kl": 0.0}
        config = replace(CONFIG, loss=name, advantage=advantage, max_tokens=16, staleness=1, **unweighed)
        policy = policy_of(tiny_base, config)
        Updater(policy, config, 8192).gradient(grouped(sampled_by(policy, rollouts, noise=0.0)), Clock())
        found[name] = policy.lora.grad.double() / torch.linalg.vector_norm(policy.lora.grad.double())
    cosines = {name: float(g @ found["importance_sampling"]) for name, g in found.items()}
    apart = {name for name, loss in LOSSES.items() if loss.reduction == "mean_of_means"}
    wrong = {
        name: cosine for name, cosine in cosines.items() if (cosine > 0.99 if name in apart else cosine < 1 - 1e-6)
    }
    assert apart and not wrong, (
        "at ratio 1 a term's gradient is -A · ∇log p, and only a mean over each rollout's own tokens turns the sum of them:"
        f" {wrong} (cosine with importance_sampling) has another term, or another reduction, than its Loss declares"
    )


# ----------------------------------------------------------------------------------------------- reuse of a batch


def test_minibatches_and_epochs_are_updates_one_after_the_other(tiny_base: Path) -> None:
    """The same bits as an update for each part by hand; from the second on the ratio is not 1."""
    groups = grouped(random_rollouts(PROBLEMS, 4, seed=3))
    together, apart = updater_of(tiny_base, REUSE), updater_of(tiny_base, replace(REUSE, minibatches=1, epochs=1))
    row = together.update(groups, Clock(), step=5)
    rows = [apart.update({p: groups[p] for p in part}, Clock()) for part in update_groups(PROBLEMS, REUSE, 5)]
    assert equal(kept(together), kept(apart))
    assert (row["updates"], row["trained_tokens"]) == (4, sum(r["trained_tokens"] for r in rows))
    assert row["num_tokens"] * 2 == row["trained_tokens"]
    assert row["grad_norm"] == pytest.approx(np.mean([r["grad_norm"] for r in rows]))
    assert row["ratio_max"] == max(r["ratio_max"] for r in rows)


@pytest.mark.parametrize(
    "config",
    [
        replace(LOOP, loss="ppo", minibatches=2, epochs=3),
        replace(LOOP, loss="gspo", kl_weight=0.1, epochs=2, lr_schedule="linear"),
    ],
    ids=lambda c: c.loss,
)
def test_stopped_and_resumed_is_the_undisturbed_run(tiny_base: Path, tmp_path: Path, config: LearnerConfig) -> None:
    """From the base model and from an adapter."""
    first = run(tiny_base, tmp_path / "first", replace(LOOP, steps=1)).kept_adapters[-1]
    for init in (None, first):
        check_resumed(tiny_base, tmp_path / str(init is None), config, (4,), init=init)


# ---------------------------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.4])
def test_the_learner_reads_what_was_sampled_at_this_temperature(tmp_path: Path, temperature: float) -> None:
    """Behaviour log-probs of the sampler are those of the learner: every ratio is 1."""
    base = write_tiny_model(tmp_path / "model")
    generator = TransformersGenerator(base, Hardware(device="cpu"))
    prompt = generator.encode("1 + 1 =", chat=False, enable_thinking=False)
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

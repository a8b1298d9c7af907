"""The optimiser updates of one step's rollouts: advantages, packs, forward and backward, Adam, metrics.

`TwoAgents` trains a generator and a critic: two adapters on one frozen base, each with its own optimiser and objective
state. During the critic's update, its adapter replaces the generator's.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from storage.estimates import Band, band
from tasks.domain.grpo.advantages.group import is_live
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.credit import (
    Credit,
    Groups,
    ObjectiveState,
    credited,
    group_rewards,
    is_masked,
    reward_means,
    seen_by_objective,
    trained_groups,
    weighed_tokens,
)
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import MAX_LOG_RATIO, Tokens, divisor, k3, log_ratio, loss_for, summed
from tasks.domain.grpo.packing import Pack, PromptGroup, build_pack, plan_shares
from tasks.domain.grpo.steps import learning_rate, update_groups
from tasks.engines.hardware import on_device
from tasks.engines.learning import parallel
from tasks.engines.learning.merging import Snapshot
from tasks.engines.learning.policy import Policy


@dataclass(slots=True)
class Clock:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


class Updater:
    """The policy and its optimiser, over one flat float32 vector of weights. start: reference weights of the KL term.
    state: the objective's state after earlier steps. diagnostics: the objective's values in the last step. remote:
    path of the state, if it is on a Tinker service."""

    remote = ""

    def __init__(self, policy: Policy, config: LearnerConfig, token_budget: int) -> None:
        self.policy, self.config, self.token_budget = policy, config, token_budget
        self.loss = loss_for(config)
        self.start: Tensor | None = None
        self.state = ObjectiveState()
        self.snapshot = Snapshot()
        self.diagnostics: Mapping[str, float] = {}
        self.weights = torch.nn.Parameter(policy.lora.master)
        self.weights.grad = policy.lora.grad
        self.optimiser = torch.optim.AdamW(
            [self.weights],
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=policy.device.type == "cuda",
        )

    def start_here(self) -> None:
        """Use the current weights as the reference of the KL term."""
        if self.config.kl_weight:
            self.start = self.policy.lora.work.detach().clone()

    def update(self, groups: Groups, clock: Clock, step: int = 1) -> dict[str, Any]:
        """Run one step on these groups, and return the measured columns of STEPS. Groups without a gradient, and
        gradients that are not finite, change neither weights nor moments."""
        rate = learning_rate(self.config, step)
        with clock.phase("credit"):
            credit = credited(groups, self.config, self.state)
        gradients = []
        for place, part in enumerate(update_groups(tuple(groups), self.config, step)):
            chosen = {p: groups[p] for p in part}
            gradients.append(sums := self.gradient(chosen, clock, credit, ("weights", step, place)))
            if sums.tokens:
                with clock.phase("optimise"):
                    self._optimise(sums, rate)
        row = rollouts_row(groups, self.config) | updates_row(gradients, self.config, rate)
        rewarded = self.config.entropy_weight or self.config.entropy_target
        weight = {"entropy_weight": self.state.entropy_weight(self.config)} if rewarded else {}
        self.diagnostics = {**credit.diagnostics, **weight, **reward_means(groups, self.config)}
        seen = (seen_by_objective(group, self.config) for group in groups.values())
        self.state = self.state.after(seen, row["entropy"], self.config)
        return row

    def _optimise(self, sums: "Sums", rate: float) -> None:
        sums.norm, sums.made = self.step(rate, self.config.grad_clip)

    def step(self, rate: float, clip: float | None) -> tuple[float, bool]:
        """Return the norm of the gradient, and whether it was finite and updated the weights. clip: largest norm."""
        grad = self.policy.lora.grad
        norm = float(torch.linalg.vector_norm(grad))
        # finite even when squared, as Adam squares it; False for NaN
        if not norm**2 <= torch.finfo(torch.float32).max:
            return norm, False
        if clip is not None and norm > clip:
            grad.mul_(clip / norm)
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        self.policy.lora.refresh()
        return norm, True

    def gradient(
        self, groups: Groups, clock: Clock, credit: Credit | None = None, key: Sequence[object] = ("weights",)
    ) -> "Sums":
        """Compute the gradient of one update, summed over packs and processes, in `policy.lora.grad`. credit: see
        trained_groups. key: see weighed_tokens; the seed is added."""
        live = trained_groups(groups, self.config, credit)
        if self.loss.weigh and live:
            with clock.phase("credit"):
                live = weighed_tokens(live, self.loss.weigh, self.config, (self.config.seed, *key))
        known = [np.isfinite(t.behaviour_T) for g in live for t in g.trajectories]
        trained, masked = sum(int(k.sum()) for k in known), sum(int((~k).sum()) for k in known)
        rollouts = [r for group in groups.values() for r in group]
        tokens = sum(len(r.token_ids) for r in rollouts if not is_masked(r, self.config))
        scale = 1 / divisor(self.loss, self.config, tokens=tokens, rollouts=len(rollouts))
        return replace(self._summed(live, scale, clock), tokens=trained, masked=masked)

    def _summed(self, live: Sequence[PromptGroup], scale: float, clock: Clock) -> "Sums":
        """Compute the gradient of these groups, and return its sums. scale: factor of the loss."""
        self.policy.lora.grad.zero_()
        rank, world = parallel.rank_and_world()
        with clock.phase("train"):
            none = torch.zeros(2, 6, dtype=torch.float64, device=self.policy.device)
            packs = [build_pack(plan) for plan in plan_shares(live, self.token_budget, world)[rank]]
            references = self._references(packs)
            measured = [none, *(self._pack(p, r, scale) for p, r in zip(packs, references, strict=True))]
            parallel.reduced(self.policy.lora.grad, "SUM")
            added = parallel.reduced(torch.stack([m[0] for m in measured]).sum(0), "SUM")
            ratio_max = parallel.reduced(torch.stack([m[1] for m in measured]).amax(0), "MAX")[0]
            loss, entropy, ratio, kl, kl_start, bounded = added.tolist()
        return Sums(0, 0, int(bounded), loss, entropy, ratio, float(ratio_max), kl, kl_start)

    def _references(self, packs: Sequence[Pack]) -> list[Tensor | None]:
        """Return log-probs_K of each pack under the reference weights; None if the loss does not use them."""
        if self.start is None:
            return [None] * len(packs)
        with torch.no_grad(), self.policy.lora.with_weights(self.start):
            return [self.policy.logprobs(pack)[0] for pack in packs]

    def _pack(self, pack: Pack, reference: Tensor | None, scale: float) -> Tensor:
        """Run one pack forward and backward. Return 2x6 metrics (sums and a maximum), which stay on the device."""
        behaviour, advantages, rollout = (
            on_device(a, self.policy.device) for a in (pack.behaviour_K, pack.advantages_K, pack.rollout_K)
        )
        logprobs, entropy = self.policy.logprobs(pack)
        weights = None if pack.weights is None else on_device(pack.weights, self.policy.device)
        tokens = Tokens(logprobs, behaviour, advantages, rollout, weights, entropy)
        loss = summed(self.loss, tokens, reference, self.config, self.state.entropy_weight(self.config)) * scale
        loss.backward()
        self.policy.lora.collect()
        with torch.no_grad():
            bounded = (logprobs - behaviour > MAX_LOG_RATIO).sum().float()
            log_ratios = log_ratio(logprobs, behaviour)
            ratio = log_ratios.exp()
            # the KL divergence from the behaviour policy, which sampled these tokens
            kl = (ratio - 1.0 - log_ratios).sum()
            kl_start = torch.zeros_like(kl) if reference is None else k3(logprobs, reference).sum()
            added = torch.stack([loss.detach(), entropy.detach().sum(), ratio.sum(), kl, kl_start, bounded])
            return torch.stack([added, ratio.max().expand(6)]).double()

    def tensors(self) -> dict[str, Tensor]:
        """Return host copies of the checkpoint's tensors. The copies are valid until the next call."""
        return self.snapshot.of(self.kept())

    def kept(self) -> dict[str, Tensor]:
        """Return the checkpoint's tensors themselves, without copying."""
        state = self.optimiser.state.get(self.weights) or {}
        return {name: tensor.detach() for name, tensor in {"weights": self.policy.lora.master, **state}.items()}

    @property
    def remembered(self) -> ObjectiveState:
        return self.state

    def restore(self, tensors: Mapping[str, Tensor], remembered: ObjectiveState) -> None:
        self.state = remembered
        with torch.no_grad():
            self.policy.lora.master.copy_(tensors["weights"])
        device = self.policy.device
        state = {
            name: tensor.to(device if name != "step" or device.type == "cuda" else "cpu")
            for name, tensor in tensors.items()
            if name != "weights"
        }
        if state:
            self.optimiser.state[self.weights] = state
        self.policy.lora.refresh()


@dataclass(slots=True)
class Sums:
    """Sums over the tokens of one gradient, which are added over packs and processes. norm: norm of the gradient. made:
    whether the gradient led to an update of the optimiser; a gradient that is not finite does not."""

    tokens: int = 0
    masked: int = 0
    bounded: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    kl: float = 0.0
    kl_start: float = 0.0
    norm: float = 0.0
    made: bool = False


def rollouts_row(groups: Groups, config: LearnerConfig) -> dict[str, Any]:
    """Return a step's metrics that depend on its rollouts only."""
    rollouts = [r for group in groups.values() for r in group]
    bands = [band(sum(r.correct for r in g), len(g)) for g in groups.values()]
    rewards = [group_rewards(g, config) for g in groups.values()]
    lengths = [np.array([len(r.token_ids) for r in g], dtype=np.float64) for g in groups.values()]
    return {
        "reward_mean": float(np.mean([x for g in rewards for x in g])),
        "correct_mean": float(np.mean([r.correct for r in rollouts])),
        "tag_valid_mean": float(np.mean([r.tag_valid for r in rollouts])),
        "live_groups": float(np.mean([is_live(g) for g in rewards])),
        **{name.value: bands.count(name) for name in Band},
        "length_mean": float(np.mean(np.concatenate(lengths))),
        "length_cv_within": float(np.mean([x.std() / x.mean() for x in lengths if x.mean()])),
        "truncated": float(np.mean([r.truncated for r in rollouts])),
        "num_tokens": int(sum(x.sum() for x in lengths)) + sum(r.other_tokens for r in rollouts),
    }


def updates_row(gradients: Sequence[Sums], config: LearnerConfig, learning_rate: float) -> dict[str, Any]:
    """Return the metrics of a step's updates: means over trained tokens, where a token counts each time it is trained
    on. Loss and gradient norm are means over updates. Without updates the metrics are None."""
    made = [s for s in gradients if s.made]
    n = sum(s.tokens for s in made)

    def mean(values: Sequence[float], of: int) -> float | None:
        return sum(values) / of if n else None

    return {
        "entropy": mean([s.entropy for s in made], n),
        "ratio_mean": mean([s.ratio for s in made], n),
        "ratio_max": max((s.ratio_max for s in made), default=None),
        "kl_behaviour": mean([s.kl for s in made], n),
        "kl_start": mean([s.kl_start for s in made], n) if config.kl_weight else None,
        "masked_tokens": sum(s.masked for s in gradients),
        "bounded_tokens": sum(s.bounded for s in gradients),
        "loss": mean([s.loss for s in made], len(made)),
        "grad_norm": mean([s.norm for s in made], len(made)),
        "learning_rate": learning_rate,
        "trained_tokens": n,
        "updates": len(made),
        "skipped_updates": sum(s.tokens > 0 and not s.made for s in gradients),
    }


#: Prefix of the critic's names in checkpoints and diagnostics.
OF_CRITIC = "critic_"
#: Columns of the critic's row that become diagnostics of the step.
CRITIC_COLUMNS = ("updates", "trained_tokens", "grad_norm", "entropy", "length_mean", "kl_behaviour", "ratio_max")


def updater_for(policy: Policy, config: LearnerConfig, token_budget: int) -> Updater:
    two = "agents" in ADVANTAGES[config.advantage].needs
    return (TwoAgents if two else Updater)(policy, config, token_budget)


class TwoAgents(Updater):
    """Updates two policies that answer in turns: the generator and, as `critic`, its critic."""

    def __init__(self, policy: Policy, config: LearnerConfig, token_budget: int) -> None:
        super().__init__(policy, config, token_budget)
        self.critic = Updater(policy, config, token_budget)

    def start_here(self) -> None:
        """Start both adapters from the same weights."""
        super().start_here()
        self.critic.start_here()
        self.policy.lora.begin_second()

    def update(self, groups: Groups, clock: Clock, step: int = 1) -> dict[str, Any]:
        """Return the generator's row. The critic's metrics become diagnostics, and its skipped updates are added to the
        generator's."""
        row = super().update(groups, clock, step)
        if critiques := criticised(groups):
            with self.policy.lora.swapped():
                other = self.critic.update(critiques, clock, step)
            row["skipped_updates"] += other["skipped_updates"]
            columns = {name: other[name] for name in CRITIC_COLUMNS if other[name] is not None}
            found = {**self.critic.diagnostics, **columns}
            self.diagnostics = {**self.diagnostics, **{OF_CRITIC + name: float(value) for name, value in found.items()}}
        return row

    def kept(self) -> dict[str, Tensor]:
        second = self.policy.lora.second
        assert second is not None
        others = {**self.critic.kept(), "weights": second.detach()}
        return super().kept() | {OF_CRITIC + name: tensor for name, tensor in others.items()}

    @property
    def remembered(self) -> ObjectiveState:
        return replace(self.state, critic=self.critic.state)

    def restore(self, tensors: Mapping[str, Tensor], remembered: ObjectiveState) -> None:
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(OF_CRITIC)}
        others = {name.removeprefix(OF_CRITIC): tensor for name, tensor in tensors.items() if name not in own}
        super().restore(own, replace(remembered, critic=None))
        with self.policy.lora.swapped():
            self.critic.restore(others, remembered.critic or ObjectiveState())


def criticised(groups: Groups) -> Groups:
    """Return the critiques of each problem's drafts. Problems without critiques are left out."""
    found = {problem: [r.critique for r in group if r.critique is not None] for problem, group in groups.items()}
    return {problem: group for problem, group in found.items() if group}

"""One optimiser update from one step's rollouts: advantages, packs, forward and backward, Adam, measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.domain.bands import Band, band
from tasks.domain.grpo.losses import divisor, loss_for
from tasks.domain.grpo.packing import PromptGroup, Trajectory, build_pack, plan_packs
from tasks.domain.grpo.rewards import reward
from tasks.domain.grpo.types import LearnerConfig, TrainRollout, group_advantages, is_live
from tasks.engines.learning import parallel
from tasks.engines.learning.policy import Policy

if TYPE_CHECKING:
    from torch import Tensor

Groups = Mapping[str, Sequence[TrainRollout]]


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


def group_rewards(group: Sequence[TrainRollout], config: LearnerConfig) -> list[float]:
    return [reward(correct=r.correct, tag_valid=r.tag_valid, tag_weight=config.tag_weight).total for r in group]


def live_groups(groups: Groups, config: LearnerConfig) -> list[PromptGroup]:
    """The groups that have a gradient, with each rollout's advantage; `index` counts the rollouts of all groups."""
    live, index = [], 0
    for group in groups.values():
        rewards = group_rewards(group, config)
        trajectories = [
            Trajectory(index + i, r.token_ids, r.logprobs_T, float(a))
            for i, (r, a) in enumerate(zip(group, group_advantages(rewards, config.advantage), strict=True))
            if a != 0 and len(r.token_ids) and not (config.truncated == "mask" and r.truncated)
        ]
        index += len(group)
        if trajectories:
            live.append(PromptGroup(group[0].prompt_ids, trajectories))
    return live


@dataclass(slots=True)
class Sums:
    """Over trained tokens of one step; sums, so that packs and processes add up."""

    tokens: int = 0
    masked: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    kl: float = 0.0


class Updater:
    """Policy and optimiser. The optimiser sees one flat float32 vector."""

    def __init__(self, policy: Policy, config: LearnerConfig, token_budget: int) -> None:
        import torch

        self.policy, self.config, self.token_budget = policy, config, token_budget
        self.loss = loss_for(config)
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

    def update(self, groups: Groups, clock: Clock) -> dict[str, Any]:
        """One step on these groups; the measured columns of storage.artifacts.schemas.STEPS."""
        import torch

        sums = self.gradient(groups, clock)
        with clock.phase("optimise"):
            grad = self.policy.lora.grad
            norm = float(torch.linalg.vector_norm(grad))
            if self.config.grad_clip is not None and norm > self.config.grad_clip:
                grad.mul_(self.config.grad_clip / norm)
            self.optimiser.step()
            self.policy.lora.refresh()
        return step_row(groups, self.config) | self._trained_row(sums, norm)

    def gradient(self, groups: Groups, clock: Clock) -> Sums:
        """Leave the step's gradient in `policy.lora.grad`, summed over packs and processes."""
        import torch

        live = live_groups(groups, self.config)
        trained = sum(int(np.isfinite(t.behaviour_T).sum()) for g in live for t in g.trajectories)
        rollouts = sum(len(g) for g in groups.values())
        scale = 1 / divisor(self.loss, self.config, trained_tokens=trained, rollouts=rollouts)
        self.policy.lora.grad.zero_()
        rank, world = parallel.rank_and_world()
        with clock.phase("train"):
            none = torch.zeros(2, 6, dtype=torch.float64, device=self.policy.device)
            measured = [none, *(self._pack(plan, scale) for plan in plan_packs(live, self.token_budget)[rank::world])]
            parallel.total(self.policy.lora.grad)
            added = parallel.total(torch.stack([m[0] for m in measured]).sum(0))
            ratio_max = parallel.largest(torch.stack([m[1] for m in measured]).amax(0))[0]
            masked, loss, entropy, ratio, kl, _ = added.tolist()
        return Sums(trained, int(masked), loss, entropy, ratio, float(ratio_max), kl)

    def _pack(self, plan: Sequence[PromptGroup], scale: float) -> Tensor:
        """Forward and backward of one pack. Returns 2x6 measurements, sums and a maximum, still on the device."""
        import torch

        pack, device = build_pack(plan), self.policy.device
        behaviour = torch.from_numpy(pack.behaviour_K).to(device)
        advantages = torch.from_numpy(pack.advantages_K).to(device)
        known = behaviour.isfinite()
        logprobs, entropy = self.policy.logprobs(pack)
        # an unknown behaviour log-prob takes the token out: ratio 1 keeps its term finite, weight 0 drops it
        behaviour = torch.where(known, behaviour, logprobs.detach())
        terms = self.loss.term(logprobs, behaviour, advantages, self.config)
        loss = torch.where(known, terms, 0.0).sum() * scale
        loss.backward()
        self.policy.lora.collect()
        with torch.no_grad():
            log_ratio = torch.where(known, logprobs - behaviour, 0.0)
            ratio = log_ratio.exp() * known
            # k3 of Schulman's note: unbiased for KL(behaviour ‖ policy), never negative
            kl = (ratio - known.float() - log_ratio).sum()
            none = torch.zeros_like(kl)
            added = torch.stack([(~known).sum().float(), loss.detach(), (entropy * known).sum(), ratio.sum(), kl, none])
            return torch.stack([added, ratio.max().expand(6)]).double()

    def _trained_row(self, sums: Sums, norm: float) -> dict[str, Any]:
        n = sums.tokens
        return {
            "entropy": sums.entropy / n if n else None,
            "ratio_mean": sums.ratio / n if n else None,
            "ratio_max": sums.ratio_max if n else None,
            "kl_behaviour": sums.kl / n if n else None,
            "masked_tokens": sums.masked,
            "loss": sums.loss if n else None,
            "grad_norm": norm if n else None,
            "learning_rate": self.config.learning_rate,
            "trained_tokens": n,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Copies of what a checkpoint keeps, where it lies: who writes them brings them to the CPU."""
        state = self.optimiser.state.get(self.weights) or {}
        kept = {"weights": self.policy.lora.master, **state}
        return {name: tensor.detach().clone() for name, tensor in kept.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        import torch

        with torch.no_grad():
            self.policy.lora.master.copy_(tensors["weights"])
        device = self.policy.device
        self.optimiser.state[self.weights] = {
            name: tensor.to(device if name != "step" or device.type == "cuda" else "cpu")
            for name, tensor in tensors.items()
            if name != "weights"
        }
        self.policy.lora.refresh()


def step_row(groups: Groups, config: LearnerConfig) -> dict[str, Any]:
    """What the rollouts alone say of a step."""
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
        "num_tokens": int(sum(x.sum() for x in lengths)),
    }

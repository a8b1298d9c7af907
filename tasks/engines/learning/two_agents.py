"""Generator and critic: two adapters on one frozen base, each with an optimiser and an objective's memory of its own.

The generator's adapter is in place; the critic's takes its place for its update alone. Every step trains the one on its
drafts and the other on its critiques of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.credit import Groups
from tasks.domain.grpo.objective_state import ObjectiveState
from tasks.domain.grpo.types import LearnerConfig
from tasks.engines.learning.policy import Policy
from tasks.engines.learning.update import Clock, Updater

if TYPE_CHECKING:
    from torch import Tensor

#: Of what a checkpoint and the diagnostics say of the critic.
OF_CRITIC = "critic_"
#: Columns of a step's row that are said of the critic beside it.
TOLD = ("updates", "trained_tokens", "grad_norm", "entropy", "length_mean", "kl_behaviour", "ratio_max")


def updater_for(policy: Policy, config: LearnerConfig, token_budget: int) -> Updater:
    two = "agents" in ADVANTAGES[config.advantage].needs
    return (TwoAgents if two else Updater)(policy, config, token_budget)


class TwoAgents(Updater):
    """The generator's, and `critic`."""

    def __init__(self, policy: Policy, config: LearnerConfig, token_budget: int) -> None:
        super().__init__(policy, config, token_budget)
        self.critic = Updater(policy, config, token_budget)

    def start_here(self) -> None:
        """Both start from the same weights."""
        super().start_here()
        self.critic.start_here()
        self.policy.lora.begin_second()

    def update(self, groups: Groups, clock: Clock, step: int = 1) -> dict[str, Any]:
        """The generator's row. What is said of the critic are diagnostics, but for an update that was skipped: that
        counts whose ever it was."""
        row = super().update(groups, clock, step)
        if critiques := criticised(groups):
            with self.policy.lora.swapped():
                other = self.critic.update(critiques, clock, step)
            row["skipped_updates"] += other["skipped_updates"]
            told = {**self.critic.diagnostics, **{name: other[name] for name in TOLD if other[name] is not None}}
            self.diagnostics = {**self.diagnostics, **{OF_CRITIC + name: float(value) for name, value in told.items()}}
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
    """The critiques of each problem's drafts; a draft may have none, and a problem."""
    found = {problem: [r.critique for r in group if r.critique is not None] for problem, group in groups.items()}
    return {problem: group for problem, group in found.items() if group}

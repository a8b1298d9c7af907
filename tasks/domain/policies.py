"""Policies and sampling parameters: what a rollout was sampled from. Both are identities in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.arms import ARMS, Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """Frozen weights by content: sha256 over the model's files. `name` is for people and is no part of identity."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Arm + adapter or none. `adapter` names the training artifact, `step` how far it had come; step 0 is the base.

    The served LoRA of step 0 adds exactly zero, so a policy at step 0 is its base model whatever training follows.
    """

    arm: str
    model: BaseModel
    adapter: str | None = None
    step: int = 0

    def identity(self) -> dict[str, object]:
        """What the ledger files its rollouts under: the rendered prompt's parts, the weights, nothing else."""
        scaffold = self.spec.scaffold
        return {
            "arm": self.arm,
            "template": scaffold.template,
            "chat": scaffold.chat,
            "enable_thinking": scaffold.enable_thinking,
            "model": self.model.sha256,
            "adapter": self.adapter if self.step else None,
            "step": self.step,
        }

    @property
    def spec(self) -> Arm:
        return ARMS[self.arm]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How rollouts are drawn. The number asked for is no part of it: growing G keeps what is there."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    def identity(self, stop: tuple[str, ...]) -> dict[str, object]:
        return {
            "max_tokens": self.max_tokens,
            "temperature": float(self.temperature),
            "top_p": float(self.top_p),
            "seed": self.seed,
            "stop": list(stop),
        }

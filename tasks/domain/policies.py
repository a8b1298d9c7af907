"""Policies and sampling parameters: what a rollout was sampled from. Both are identities in the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tasks.domain.arms import ARMS, Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A model by content (tasks/engines/model_files.py). `name` is for people, `formerly` is what the ledger called it
    when other files of its folder counted too; neither is part of what it is."""

    name: str = field(default="", compare=False)
    sha256: str
    formerly: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Arm + adapter or none. `adapter` names the training artifact, `adapter_step` how far that training had come.

    `step` and `seed` are labels: steps of the studied training, which starts at 0 also where its start is the adapter
    of an earlier lesson; that training's seed.
    """

    arm: str
    model: BaseModel
    adapter: str | None = None
    adapter_step: int = 0
    step: int = 0
    seed: int = 0

    def identity(self) -> dict[str, object]:
        """What the ledger files its rollouts under: the rendered prompt's parts, the weights, nothing else."""
        scaffold = self.spec.scaffold
        return {
            "arm": self.arm,
            "template": scaffold.template,
            "chat": scaffold.chat,
            "enable_thinking": scaffold.enable_thinking,
            "model": self.model.sha256,
            "adapter": self.adapter if self.adapter_step else None,
            "step": self.adapter_step,
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


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """LoRA weights in PEFT format. `name` must be new for new weights: prefix caches are keyed on it."""

    name: str
    folder: Path

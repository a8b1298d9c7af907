"""Policies and sampling parameters: what a rollout was sampled from. Both are identities in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from storage.artifacts.fingerprint import canonical
from storage.errors import UserError
from tasks.domain.arms import ARMS, Arm
from tasks.domain.ranges import AtLeastOne, Checked, Real, Seed, ShareAboveZero
from tasks.domain.scaffolds import READING, Scaffold

#: How a sampler on a GPU stores keys and values: as it computes them, or in 8 bits each.
KVCache = Literal["full", "fp8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A model by content (tasks/engines/model_files.py). `name` is for people, and no part of what it is."""

    name: str = field(default="", compare=False)
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeElsewhere:
    """An adapter that nothing here has trained, by the content of its files. `name` is for people: folder or hub id."""

    name: str = field(default="", compare=False)
    sha256: str


def check_bases(models: Mapping[str, BaseModel], arms: Iterable[Arm]) -> None:
    """models: of each arm. Errors: UserError for an arm that would be sampled with an adapter of another base model."""
    for arm in arms:
        own, trained_on = models[arm.name], models[arm.head]
        if own != trained_on:
            raise another_base(f"arm {arm.name}", own, f"the adapter of {arm.head}", trained_on)


def another_base(who: str, own: BaseModel, adapter: str, trained_on: BaseModel) -> UserError:
    names = [f"{model.name or 'a model'} ({model.sha256[:12]}…)" for model in (own, trained_on)]
    return UserError(
        f"{who} stands on {names[0]}, and {adapter} was trained on {names[1]}: an adapter is served on its own base"
        " model alone"
    )


#: The role of what is sampled by a training's second adapter.
AS_CRITIC = "critic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Arm + adapter or none. `adapter` names the training artifact, `adapter_step` how far that training had come.

    scaffold: the arm's, by content; that of the day unless it is given, as by a stored recipe.
    `step` and `seed` are labels: steps of the studied training, which starts at 0 also where its start is the adapter
    of an earlier lesson; that training's seed.
    role: `critic` for the second adapter of a training that has two (advantages/structured.py).
    """

    arm: str
    model: BaseModel
    adapter: str | None = None
    adapter_step: int = 0
    step: int = 0
    seed: int = 0
    scaffold: Scaffold = None  # type: ignore[assignment]
    role: str = ""

    def __post_init__(self) -> None:
        if self.scaffold is None:
            object.__setattr__(self, "scaffold", ARMS[self.arm].scaffold)

    def identity(self) -> dict[str, object]:
        """What the ledger files its rollouts under: all that they are sampled from, and nothing that only reads them.
        `stop` stands with the sampling parameters."""
        scaffold = self.scaffold
        spelt: dict[str, object] = {
            "arm": self.arm,
            "template": scaffold.template,
            "chat": scaffold.chat,
            "enable_thinking": scaffold.enable_thinking,
            "model": self.model.sha256,
            "adapter": self.adapter if self.adapter_step else None,
            "step": self.adapter_step,
        }
        spelt |= {"role": self.role} if self.role else {}
        return spelt | _others(scaffold, {*spelt, *READING, "stop", "versions"})


@checked(frozen=True, slots=True, kw_only=True)
class Sampling(Checked):
    """How rollouts are drawn. The number of rollouts is no part of it: a larger group keeps what is stored."""

    max_tokens: AtLeastOne
    """Longest completion, in tokens."""
    temperature: Annotated[Real, Field(ge=0, le=2)] = 1.0
    """0 is greedy; 2 is the most that vLLM takes."""
    top_p: ShareAboveZero = 1.0
    """Share of probability that the kept tokens have together (nucleus sampling)."""
    seed: Seed = 0
    """Seed of the draws."""
    kv_cache: KVCache = "full"
    """Precision of keys and values on a GPU. `fp8` holds twice the tokens and samples a slightly different policy."""

    def identity(self, stop: tuple[str, ...]) -> dict[str, object]:
        spelt: dict[str, object] = {
            "max_tokens": self.max_tokens,
            "temperature": float(self.temperature),
            "top_p": float(self.top_p),
            "seed": self.seed,
            "stop": list(stop),
        }
        return spelt | _others(self, set(spelt))


def _others(value: object, spelt: set[str]) -> dict[str, object]:
    """Fields beside the ones that an identity always spells, where they are not at their default: a new field makes no
    new name, and none can be forgotten."""
    told = canonical(value)
    assert isinstance(told, dict)
    return {name: form for name, form in told.items() if name not in {"is", *spelt}}


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """LoRA weights in PEFT format. `name` is for people: engines tell adapters apart by `handover.served_name`."""

    name: str
    folder: Path

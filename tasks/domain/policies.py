"""Policies and sampling parameters. The ledger stores rollouts by both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from storage.artifacts.fingerprint import canonical
from storage.errors import UserError
from tasks.domain.ranges import AtLeastOne, Checked, Real, Seed, ShareAboveZero
from tasks.domain.scaffolds import ARMS, READING, Arm, Scaffold

#: Precision of the KV cache on a GPU: as computed, or 8 bits.
KVCache = Literal["full", "fp8"]
#: Prefix of the identity of a model whose files are only on a server.
SERVED = "served:"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A model. The identity of a model is a hash of its files (tasks/engines/model_files.py), or `served:NAME` if only
    a server has them. `name` is a label."""

    name: str = field(default="", compare=False)
    sha256: str

    @property
    def served(self) -> bool:
        """Return whether only a server has the model's files."""
        return self.sha256.startswith(SERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeElsewhere:
    """An adapter that was not trained in this store, identified by its content. `name` is a label: folder or hub id."""

    name: str = field(default="", compare=False)
    sha256: str


def check_bases(models: Mapping[str, BaseModel], arms: Iterable[Arm]) -> None:
    """Raise UserError for an arm whose adapter was trained on another base model than the arm's. models: by arm."""
    for arm in arms:
        own, trained_on = models[arm.name], models[arm.head]
        if own != trained_on:
            raise another_base(f"arm {arm.name}", own, f"the adapter of {arm.head}", trained_on)


def another_base(who: str, own: BaseModel, adapter: str, trained_on: BaseModel) -> UserError:
    names = [f"{model.name or 'a model'} ({model.sha256[:12]}…)" for model in (own, trained_on)]
    return UserError(
        f"{who} has the base model {names[0]}, but {adapter} was trained on {names[1]}: an adapter works only with the"
        " model it was trained on"
    )


#: The role of a training's second adapter.
AS_CRITIC = "critic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An arm with or without an adapter. `adapter`: the training artifact; `adapter_step`: the step of that training.

    - scaffold: by default the present scaffold of the arm.
    - step, seed: labels: step and seed of the studied training. At step 0 there may be a lesson's adapter.
    - role: `critic` for the second adapter of a training that has two (advantages/structured.py).
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
        """Return the identity in the ledger: everything that affects sampling, and nothing that only affects parsing.
        Stop strings belong to the sampling parameters."""
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
    """How rollouts are sampled. The number of rollouts is not included, so a larger group reuses stored rollouts."""

    max_tokens: AtLeastOne
    """Longest completion, in tokens."""
    temperature: Annotated[Real, Field(ge=0, le=2)] = 1.0
    """Sampling temperature. 0 is greedy; vLLM accepts at most 2."""
    top_p: ShareAboveZero = 1.0
    """Total probability of the tokens that are kept (nucleus sampling)."""
    seed: Seed = 0
    """Seed of the sampling."""
    kv_cache: KVCache = "full"
    """Precision of the KV cache on a GPU. `fp8` holds twice the tokens and samples a slightly different policy."""

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
    """Return the fields that differ from their default, except `spelt`. So a new field changes no fingerprint."""
    known = canonical(value)
    assert isinstance(known, dict)
    return {name: form for name, form in known.items() if name not in {"is", *spelt}}


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """LoRA weights in PEFT format. `name` is a label; engines use `adapter_files.served_name`."""

    name: str
    folder: Path

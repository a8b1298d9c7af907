"""What a stage call is, and what is told of it while it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from storage.artifacts.manifest import Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.store import Payload, Store


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold before a step is made, though it changes nothing of what is made. after: artifacts that must be
    there. why_not: why it does not hold, by what the store has; empty if it does."""

    after: tuple[Ref, ...]
    why_not: Callable[[Store], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One stage call: what is asked for, and how to make it if nobody has. arguments: as the caller gave them."""

    title: str
    ref: Ref
    recipe: Recipe
    arguments: Mapping[str, Any]
    make: Callable[[], pa.Table | Payload]
    condition: Condition | None = None

    @property
    def awaited(self) -> tuple[Ref, ...]:
        """Artifacts that must be there before it can be made: its inputs, and those of its condition."""
        return (*self.recipe.input_refs, *(self.condition.after if self.condition else ()))


@dataclass(frozen=True, slots=True)
class Progress:
    """Sent to the session's listener: `reused`, `started`, `advanced`, `noted` (a remark that stays), `seen` (a first
    trace), `made`. bands: problems of each so far, of which whole groups are sampled."""

    event: str
    title: str
    ref: Ref
    done: int = 0
    total: int = 0
    unit: str = "rows"
    seconds: float = 0.0
    detail: str = ""
    bands: tuple[int, ...] = ()

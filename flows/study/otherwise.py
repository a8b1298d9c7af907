"""How else an arm is trained, beside how a study trains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from storage.errors import UserError
from tasks.domain.grpo.losses import loss_for
from tasks.domain.grpo.types import LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One of the objectives that a study compares with its own: how the same arm is trained otherwise."""

    name: str
    training: LearnerConfig


def alike(objectives: Sequence[Objective], before: LearnerConfig, after: LearnerConfig) -> tuple[Objective, ...]:
    """With what the study's own training was changed by, but for what makes each objective what it is. Errors:
    UserError naming the objective that does not go with it."""
    return tuple(replace(one, training=_changed(one, before, after)) for one in objectives)


def _changed(one: Objective, before: LearnerConfig, after: LearnerConfig) -> LearnerConfig:
    names = [f.name for f in fields(before) if getattr(one.training, f.name) == getattr(before, f.name)]
    try:
        changed = replace(one.training, **{name: getattr(after, name) for name in names})
        loss_for(changed)
        return changed
    except UserError as error:
        raise UserError(f"objective {one.name}: {error}") from None

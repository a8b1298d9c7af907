"""How else an arm is trained, beside how a study trains it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.losses import loss_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One of the objectives that a study compares with its own: how the same arm is trained otherwise."""

    name: str
    training: LearnerConfig


def followed(one: Objective, before: LearnerConfig, after: LearnerConfig) -> Objective | UserError:
    """With what the study's own training was changed by, but for what makes the objective what it is; or why it does
    not go with that."""
    names = [f.name for f in fields(before) if getattr(one.training, f.name) == getattr(before, f.name)]
    try:
        changed = replace(one.training, **{name: getattr(after, name) for name in names})
        loss_for(changed)
        return replace(one, training=changed)
    except UserError as error:
        return UserError(f"objective {one.name}: {error}")

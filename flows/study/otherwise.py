"""How else an arm is trained, beside how a study trains it."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.domain.grpo.types import LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One of the objectives that a study compares with its own: how the same arm is trained otherwise."""

    name: str
    training: LearnerConfig

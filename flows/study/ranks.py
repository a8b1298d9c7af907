"""Ranks of the adapters that a study's sampling engines serve."""

from __future__ import annotations

from collections.abc import Mapping

from flows.study.profile import Profile
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.policies import BaseModel


def trainings(profile: Profile, head: str) -> list[LearnerConfig]:
    """Of an arm: lessons, its own, and by each objective."""
    lessons = [lesson.training for lesson in profile.lessons if head in lesson.arms]
    return lessons + ([profile.training, *(one.training for one in profile.objectives)] if profile.seeds else [])


def served_ranks(profile: Profile, models: Mapping[str, BaseModel], elsewhere: Mapping[str, int]) -> dict[str, int]:
    """Of the largest adapter that is served on each base model, by its digest; 0 where none is. models: of each arm.
    elsewhere: of those made elsewhere, likewise."""
    found = {model.sha256: elsewhere.get(model.sha256, 0) for model in models.values()}
    for head in profile.heads(profile.arms):
        base = models[head].sha256
        found[base] = max([found[base], *(learner.lora_rank for learner in trainings(profile, head))])
    return found

"""A study as the tables of a file that says all of it, and how two differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

import tomli_w

from flows.study.otherwise import Objective
from flows.study.reading import spelt
from flows.study.scaffolds import told_of
from flows.study.shape import Profile
from tasks.domain.arms import ARMS, Arm
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.scaffolds import SCAFFOLDS

LABELS = ("name", "purpose", "title", "about", "own", "objectives", "budget")


def tables_of(study: Profile) -> dict[str, Any]:
    """Every field, in the words of `study.toml`; labels are no part of it."""
    told = {f.name: spelt(getattr(study, f.name)) for f in fields(study) if f.name not in LABELS}
    own = {arm.name: arm for arm in study.own}
    if scaffolds := {arm.scaffold.name: arm.scaffold for arm in study.own if arm.scaffold.name not in SCAFFOLDS}:
        told["scaffolds"] = {name: _without_name(scaffold) for name, scaffold in scaffolds.items()}
    if any(_arm(arm) for arm in study.own):
        told["arms"] = {name: _arm(own[name]) if name in own else {} for name in study.arms}
    if limits := study.budget.limits():
        told["budget"] = limits
    if study.objectives:
        told["objectives"] = {one.name: _changed(one, study.training) for one in study.objectives}
    return told


def differences(before: Profile, after: Profile) -> dict[str, tuple[object, object]]:
    """Fields that differ, by path; null where one of the two has no such field."""
    left, right = (_flat(_with_arms(one)) for one in (before, after))
    paths = dict.fromkeys([*left, *right])
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def written_out(study: Profile, without: Collection[str] = ()) -> str:
    """A file that says all of it but these tables."""
    told = {name: table for name, table in tables_of(study).items() if name not in without}
    return tomli_w.dumps(told, multiline_strings=True)


def told(value: object) -> str:
    return "–" if value is None else repr(value) if isinstance(value, str) else str(value)


def _with_arms(study: Profile) -> dict[str, Any]:
    arms = {f"arms.{arm.name}": _arm(arm) for arm in study.own}
    return {**tables_of(study), "arms": [*study.arms], **{name: table for name, table in arms.items() if table}}


def _arm(arm: Arm) -> dict[str, object]:
    """What its table says: nothing for a scaffold that trains its own adapter on the study's model, nor what
    everybody's arm is."""
    usual = ARMS.get(arm.name) or Arm(name=arm.name, scaffold=arm.scaffold, trained_as=arm.name)
    said, silent = told_of(arm), told_of(usual)
    if arm.name not in ARMS:
        silent["scaffold"] = arm.name
    return {name: spelt(value) for name, value in said.items() if value != silent[name]}


def _changed(one: Objective, training: LearnerConfig) -> dict[str, object]:
    return {
        f.name: spelt(getattr(one.training, f.name))
        for f in fields(training)
        if getattr(one.training, f.name) != getattr(training, f.name)
    }


def _without_name(record: Any) -> dict[str, Any]:
    return {f.name: spelt(getattr(record, f.name)) for f in fields(record) if f.name != "name"}


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, Mapping) and value
        found |= _flat(value, f"{within}{name}.") if inner else {f"{within}{name}": value}
    return found

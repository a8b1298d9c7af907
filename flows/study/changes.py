"""A study as tables: changed by a file or `--set`, written in full, and compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import tomli_w

from flows.study import checks
from flows.study.objectives import changes, objectives_of
from flows.study.profile import Benchmark, Profile
from flows.study.reading import HIDDEN, Fault, Tables, chosen, flat, merged, spelt, validated, without_name
from flows.study.scaffolds import arm_table, own_arms
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.scaffolds import SCAFFOLDS


def changed(
    base: Profile | None,
    given: Tables,
    faults: list[Fault],
    *,
    benchmarks: Sequence[Benchmark] = (),
    arms: Tables | None = None,
) -> Profile | None:
    """Return a study whose fields are replaced by those of the tables; None if there is a mistake. benchmarks:
    additional ones that may be named. arms: tables that change arms without choosing any; tables in `given` also choose
    the study's arms."""
    given = dict(given)
    scaffolds, arm_tables = given.pop("scaffolds", {}), given.pop("arms", {})
    if not isinstance(arm_tables, Mapping):
        given["arms"], arm_tables = arm_tables, {}
    elif arm_tables:
        given["arms"] = [*arm_tables]
    for name in [name for name in HIDDEN if name in given]:
        faults.append(Fault((name,), f"no field '{name}' that could be changed here"))
        del given[name]
    own = own_arms(merged(arm_tables, arms or {}), base.own if base else (), scaffolds, faults)
    before: dict[str, Any] = {"name": "study", "purpose": ""}
    if base:
        before = fields_of(base) | {name: getattr(base, name) for name in HIDDEN if name != "own"}
    objectives = given.pop("objectives", None)
    for name, known in (("benchmarks", spelt(tuple(benchmarks)) or {}), ("lessons", {})):
        old = before.get(name) or {}
        if name in given and not isinstance(given[name], Mapping):
            given[name], before[name] = chosen(given[name], {**known, **old}, (name,), faults), {}
        elif name in given:
            before[name] = old | {n: known[n] for n in given[name] if n in known and n not in old}
    study = validated(Profile, {**merged(before, given), "own": own}, (), faults)
    if study is None or faults:
        return None
    study = replace(study, objectives=objectives_of(study, base, objectives, faults))
    faults += [] if faults else checks.faults_of(study)
    if not faults:
        old = spelt(base.training) if base else {f.name: spelt(f.default) for f in fields(LearnerConfig)}
        now = spelt(study.training)
        faults += checks.unread(study, [name for name in given.get("training", {}) if now[name] != old[name]])
    return None if faults else study


#: Tables that a file has only if they are not empty.
OMITTED = ("budget", "objectives", "scaffolds", "tracking")


def tables_of(study: Profile) -> dict[str, Any]:
    """Every field, as in `study.toml`, without labels."""
    tables = fields_of(study)
    own = {arm.name: arm for arm in study.own}
    tables["scaffolds"] = {
        arm.scaffold.name: without_name(arm.scaffold) for arm in study.own if arm.scaffold.name not in SCAFFOLDS
    }
    if any(arm_table(arm) for arm in study.own):
        tables["arms"] = {name: arm_table(own[name]) if name in own else {} for name in study.arms}
    tables["budget"] = study.budget.limits()
    tables["objectives"] = {one.name: changes(one.training, study.training) for one in study.objectives}
    return {name: table for name, table in tables.items() if table or name not in OMITTED}


def differences(before: Profile, after: Profile) -> dict[str, tuple[object, object]]:
    """Fields that differ, by path; None if one study lacks the field."""
    left, right = (dict(flat(_with_arms(one))) for one in (before, after))
    paths = dict.fromkeys([*left, *right])
    return {path: (left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)}


def written_out(study: Profile, without: Collection[str] = ()) -> str:
    """A file with all fields except these tables."""
    tables = {name: table for name, table in tables_of(study).items() if name not in without}
    return tomli_w.dumps(tables, multiline_strings=True)


def value_text(value: object) -> str:
    return "–" if value is None else repr(value) if isinstance(value, str) else str(value)


def fields_of(study: Profile) -> dict[str, Any]:
    """Return its fields as tables, without labels, own arms and objectives."""
    names = [f.name for f in fields(study) if f.name not in (*HIDDEN, "objectives")]
    return {name: spelt(getattr(study, name)) for name in names}


def _with_arms(study: Profile) -> dict[str, Any]:
    arms = {f"arms.{arm.name}": table for arm in study.own if (table := arm_table(arm))}
    return {**tables_of(study), "arms": [*study.arms], **arms}

"""`--set path.to.field=value`: settings as the command line and forms have them, and the options that are short for
one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from flows.study.changes import changed, fields_of, tables_of
from flows.study.objectives import SHARED
from flows.study.profile import Profile
from flows.study.profiles import BENCHMARKS
from flows.study.reading import NONE, Fault, flat, nested
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig

#: Options of the command line and of forms, and the setting that each is short for.
SHORT = {
    "arms": "arms",
    "seeds": "seeds",
    "pools": "pool.sources",
    "limit": "pool.limit",
    "model": "model",
    "engine": "hardware.engine",
    "without": "hardware.without",
    "anyway": "gate.anyway",
}


def short_settings(options: Mapping[str, object]) -> tuple[str, ...]:
    """The settings of options that are given.

    >>> short_settings({"arms": ("panel", "thinking"), "limit": 3, "seeds": (), "engine": "auto"})
    ('arms=panel,thinking', 'pool.limit=3')
    """
    given = {SHORT[name]: value for name, value in options.items() if value and value != "auto"}
    lists = {path: value if isinstance(value, list | tuple) else [value] for path, value in given.items()}
    return tuple(f"{path}={','.join('true' if v is True else str(v) for v in vs)}" for path, vs in lists.items())


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings; what has a name is chosen by it, `benchmarks=[]` means none.
    Errors: UserError naming every field that is unknown or not what it may be.

    >>> from flows.study.profiles import DEMO
    >>> overridden(DEMO, ["screening.group_size=16"]).screening.group_size
    16
    >>> overridden(DEMO, ["screening.adaptive=true"]).screening.adaptive
    True
    """
    values: dict[str, str] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write field=value, for example training.learning_rate=1e-3")
        values[path.strip()] = text.strip()
    old, faults = dict(flat(fields_of(profile) | {"objectives": [], "benchmarks": [], "lessons": []})), list[Fault]()
    typed = {path: typed_value(text, old.get(path)) for path, text in values.items()}
    arms = {path: value for path, value in typed.items() if path.startswith("arms.")}
    given = nested({path: value for path, value in typed.items() if path not in arms})
    study = changed(profile, given, faults, benchmarks=BENCHMARKS, arms=nested(arms).get("arms"))
    if study is None:
        found = (f"--set {one}" if ".".join(one.path) in values else str(one) for one in faults)
        raise UserError("".join(c if c.isprintable() else " " for c in "; ".join(dict.fromkeys(found))))
    return study


def typed_value(text: str, old: object = None) -> Any:
    """Return the value of text that was typed after `--set field=`: as TOML has it, else the text; lists also without
    brackets. old: the present value of the field.

    >>> typed_value("(1, 2)", [0]), typed_value("true", False), typed_value("panel,thinking", []), typed_value("3", "m")
    ([1, 2], True, ['panel', 'thinking'], '3')
    """
    if isinstance(old, list) or text[:1] in ("[", "("):
        return [typed_value(part.strip()) for part in text.strip("[]()").split(",") if part.strip()]
    if isinstance(old, str) and old != NONE:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def settable(study: Profile) -> Iterator[str]:
    """Every path that a setting of this study may begin with: its fields, and those of what it holds several of, by
    their names.

    >>> from flows.study.profiles import DEMO
    >>> sorted(path for path in settable(DEMO) if path.endswith((".steps", "thinking.model")))
    ['arms.thinking.model', 'training.steps']
    """
    several = ("arms", "lessons", "benchmarks", "objectives")
    learner = [f.name for f in fields(LearnerConfig) if f.name not in SHARED]
    objectives = {one.name: dict.fromkeys(learner) for one in study.objectives}
    arms = {name: dict.fromkeys(("trained_as", "model", "adapter")) for name in study.arms}
    tables = {**tables_of(study), **fields_of(study), "objectives": objectives, "arms": arms}
    yield from several
    yield from (path for path, _ in flat(tables) if path not in several)

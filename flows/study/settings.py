"""Fields of a study as they are set on the command line and in forms: `path.to.field=value`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from flows.study.files import HIDDEN, changed_study, setting_names
from flows.study.objectives import SHARED
from flows.study.profiles import BENCHMARKS
from flows.study.reading import Reading, Typed
from flows.study.scaffolds import ArmTable
from flows.study.shape import Profile
from storage.errors import UserError
from tasks.domain.arms import ARMS
from tasks.domain.scaffolds import SCAFFOLDS


def overridden(profile: Profile, settings: Sequence[str]) -> Profile:
    """Apply `path.to.field=value` settings; what has a name is chosen by it, `benchmarks=[]` means none.
    Errors: UserError naming every field that is unknown or not what it may be.

    >>> from flows.study.profiles import DEMO
    >>> overridden(DEMO, ["screening.group_size=16"]).screening.group_size
    16
    >>> overridden(DEMO, ["screening.adaptive=true"]).screening.adaptive
    True
    """
    asked: dict[str, Any] = {}
    arms: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write field=value, for example training.learning_rate=1e-3")
        *above, name = path.strip().split(".")
        inner, above = (arms, above[1:]) if above[:1] == ["arms"] else (asked, above)
        for word in above:
            inner = inner.setdefault(word, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {path}: '{word}' has no fields of its own")
        inner[name] = Typed(text.strip())
    reading = Reading(known={"benchmarks": BENCHMARKS}, hidden=HIDDEN)
    return changed_study(asked, profile, reading, arms) or refuse(reading, settings)


def settable(study: Profile) -> Iterator[str]:
    """Every path that a setting of this study may begin with: its fields, and those of what it holds several of, by
    their names.

    >>> from flows.study.profiles import DEMO
    >>> [path for path in settable(DEMO) if path.endswith((".steps", "thinking.model"))]
    ['training.steps', 'arms.thinking.model']
    """
    yield from setting_names(study)
    yield "lessons"
    own = [arm.scaffold for arm in study.own if arm.scaffold.name not in SCAFFOLDS]
    for above, several in {
        "lessons": study.lessons,
        "benchmarks": study.benchmarks,
        "scaffolds": {scaffold.name: scaffold for scaffold in own}.values(),
    }.items():
        for one in several:
            within = f"{above}.{one.name}."
            yield from (path for path in setting_names(one, within) if path != f"{within}name")
    for objective in study.objectives:
        of_its_own = (name for name in setting_names(objective.training) if name not in SHARED)
        yield from (f"objectives.{objective.name}.{name}" for name in of_its_own)
    for name in study.arms:
        given = {"name", "scaffold"} if name in ARMS else {"name"}  # everybody's arm keeps its prompt
        yield from (f"arms.{name}.{one.name}" for one in fields(ArmTable) if one.name not in given)


def refuse(reading: Reading, settings: Sequence[str]) -> NoReturn:
    """Errors: UserError with everything that was found wrong, in a line whatever was typed; `--set` stands before what
    it set."""
    paths = {setting.partition("=")[0].strip() for setting in settings}
    said = (f"--set {one}" if ".".join(one.path) in paths else one.said for one in reading.faults)
    raise UserError("".join(c if c.isprintable() else " " for c in "; ".join(dict.fromkeys(said))))

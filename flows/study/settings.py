"""Fields of a study as they are set on the command line and in forms: `path.to.field=value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from flows.study.files import HIDDEN, changed_study
from flows.study.profiles import BENCHMARKS
from flows.study.reading import Reading, Typed
from flows.study.shape import Profile
from storage.errors import UserError


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


def refuse(reading: Reading, settings: Sequence[str]) -> NoReturn:
    """Errors: UserError with everything that was found wrong, in a line whatever was typed; `--set` stands before what
    it set."""
    paths = {setting.partition("=")[0].strip() for setting in settings}
    said = (f"--set {one}" if ".".join(one.path) in paths else one.said for one in reading.faults)
    raise UserError("".join(c if c.isprintable() else " " for c in "; ".join(dict.fromkeys(said))))

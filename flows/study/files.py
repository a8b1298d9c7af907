"""`study.toml`: a team's own study as one readable file, read and checked as a whole before anything is made.

A file says what it is based on and what is changed; docs/studies.md has its fields. The built-in profiles are such
files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from flows.study import checks
from flows.study.lines import listed
from flows.study.matrix import combinations, flat, nested
from flows.study.objectives import with_objectives
from flows.study.reading import NAME, UNNAMED, Fault, Reading, Typed, spelt, twice, without
from flows.study.scaffolds import own_arms, own_scaffolds
from flows.study.shape import Benchmark, Profile
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.scaffolds import SCAFFOLDS

#: Labels and what is made of other tables: no field that a file or `--set` writes.
HIDDEN = {Profile: frozenset({"name", "purpose", "title", "about", "own"})}
#: What is chosen by a list of names, or made by tables.
CHOSEN = ("arms", "objectives", "benchmarks", "lessons")
#: Questions of one matrix: more is a slip, and a check that takes for ever.
MOST_ASKED = 256
#: Tables whose fields hang together, and on each other.
HANGING = frozenset({"training", "scaffolds", *CHOSEN})
#: What a file says beside what is changed.
SAID = ("base", "name", "purpose", "questions", "matrix")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """name: what it says that it is called. questions: the study with something changed, by name."""

    name: str
    study: Profile
    questions: Mapping[str, Profile] = field(default_factory=dict)


def read_study(
    text: str, where: str, *, bases: Callable[[str], Profile], benchmarks: tuple[Benchmark, ...] = ()
) -> StudyFile:
    """where: what errors call the file. bases: a profile by name. benchmarks: that may be named. Errors: UserError that
    lists everything that is wrong, each with its line."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        both = re.search(rf"Cannot declare \('({'|'.join(CHOSEN)})', '", str(error))
        name = both[1] if both and re.search(rf"^{both[1]}\s*=", text, re.M) else ""
        hint = f"; a list `{name} = [...]` and tables `[{name}.NAME]` exclude each other: name each by a table"
        raise UserError(f"{where}: no TOML: {error}{hint if name else ''}") from None
    except RecursionError:
        raise UserError(f"{where}: no TOML that a study could be: its lists or tables are nested too deeply") from None
    reading = Reading(known={"benchmarks": benchmarks}, hidden=HIDDEN)
    base = _base(said, bases, reading)
    asked = {name: value for name, value in said.items() if name not in SAID}
    found = None if reading.faults else changed_study(asked, base, reading)
    standing, unsure = (found, frozenset[str]()) if found else _what_stands(asked, base, reading)
    questions = dict(_questions(said, standing, unsure, reading, checked=found is not None)) if standing else {}
    if found is None or reading.faults:
        raise UserError(listed(where, text, reading.faults))
    found = replace(found, about=said.get("purpose", ""))
    return StudyFile(name=said.get("name", ""), study=found, questions=questions)


def _what_stands(
    asked: Mapping[str, Any], base: Profile | None, reading: Reading
) -> tuple[Profile | None, frozenset[str]]:
    """A study without what is wrong with it, for what is asked of it, and tables of which a question is told nothing:
    it could be blamed for what is missing there, whose fields hang together. Null where no base is known."""
    wrong = {fault.path[0] if fault.path else "" for fault in reading.faults if fault.path[:1] != ("scaffolds",)}
    whole = any(len(fault.path) < 3 for fault in reading.faults if fault.path[:1] == ("scaffolds",))
    if base is None or "" in wrong:
        return None, frozenset()
    given, none = without(asked, reading.faults), frozenset[str]()
    for unsure in [HANGING] if whole or wrong & HANGING or "objectives" in asked else [none, HANGING]:
        left = {name: value for name, value in given.items() if name not in unsure}
        if found := changed_study(left, base, replace(reading, faults=[]), checked=False):
            return found, unsure
    return None, none


def _base(said: Mapping[str, Any], bases: Callable[[str], Profile], reading: Reading) -> Profile | None:
    for label in ("base", "name", "purpose"):
        if label in said and not (isinstance(said[label], str) and said[label].strip()):
            reading.refuse((label,), f"{label} is {said[label]!r}; it must be text")
            return None
    if said.get("base", "").endswith(".toml"):
        return reading.refuse(("base",), f"{said['base']} is a file, and what a study is based on a built-in profile")
    try:
        return bases(said["base"]) if "base" in said else None
    except UserError as error:
        return reading.refuse(("base",), str(error))


def changed_study(
    said: Mapping[str, Any],
    base: Profile | None,
    reading: Reading,
    arms: Mapping[str, Any] | None = None,
    *,
    checked: bool = True,
) -> Profile | None:
    """A study with fields changed; null where something is wrong. arms: tables that change arms and choose none, where
    those of `said` are the study's arms. checked: what goes together is looked at too."""
    asked = {name: value for name, value in said.items() if name not in ("scaffolds", "objectives")}
    defined = {arm.name: arm for arm in base.own} if base else {}
    scaffolds = {s.name: s for s in (arm.scaffold for arm in defined.values()) if s.name not in SCAFFOLDS}
    scaffolds |= own_scaffolds(said.get("scaffolds", {}), scaffolds, reading)
    defined = {n: replace(arm, scaffold=scaffolds.get(arm.scaffold.name, arm.scaffold)) for n, arm in defined.items()}
    tables = asked.get("arms") if isinstance(asked.get("arms"), Mapping) else {}
    assert isinstance(tables, Mapping)
    own = own_arms({**tables, **(arms or {})}, defined, scaffolds, reading, said.get("scaffolds"))
    if tables:
        asked["arms"] = list(tables)
    if base is None:
        asked = {"name": "study", "purpose": "", **asked}
    written = replace(reading, hidden=HIDDEN if base else {Profile: HIDDEN[Profile] - {"name", "purpose"}})
    study = written.record(Profile, asked, base)
    if study is None:  # the rest of it is looked at
        study = replace(written, faults=[]).record(Profile, without(asked, reading.faults), base)
    if study is None:
        return None
    study = replace(study, own=tuple(own.values()))
    if not any(fault.path[:1] == ("training",) for fault in reading.faults):
        study = with_objectives(said.get("objectives"), base, study, reading) or study
    if reading.faults:  # what was not read is not there to go with the rest
        _look_up_names(study, reading)
    elif checked:
        reading.faults.extend(checks.faults_of(study))
    if checked and not reading.faults:
        reading.faults.extend(checks.unread(study, _named_of_training(said.get("training"), base)))
    return None if reading.faults else study


def _look_up_names(study: Profile, reading: Reading) -> None:
    """In fields that can be read, where others cannot."""
    wrong, known = {fault.path[0] for fault in reading.faults if fault.path}, [fault.path for fault in reading.faults]
    found = checks.unknown_names(study, arms=not wrong & {"arms", "scaffolds"})
    reading.faults.extend(fault for fault in found if fault.path not in known)


def _named_of_training(given: Any, base: Profile | None) -> Iterator[str]:
    """Fields of the training that somebody asked for: typed, or written as another than they would be."""
    before = {f.name: getattr(base.training, f.name) if base else f.default for f in fields(LearnerConfig)}
    for name, value in (given if isinstance(given, Mapping) else {}).items():
        if isinstance(value, Typed) or spelt(before[name]) != value:
            yield name


def _questions(
    said: Mapping[str, Any], study: Profile, unsure: Set[str], reading: Reading, *, checked: bool
) -> Iterator[tuple[str, Profile]]:
    """Of `[questions.NAME]`, and of `[matrix]` one for each combination of its values. unsure: tables of which nothing
    is said. checked: as in changed_study."""
    tables: dict[str, tuple[tuple[str, ...], Any]] = {
        name: (("questions", name), table) for name, table in _table(said, "questions", reading).items()
    }
    for name in (name for name in tables if not NAME.fullmatch(name)):
        reading.refuse(("questions", name), f"{name[:80]!r} {UNNAMED}")
    matrix = _table(said, "matrix", reading)
    for path in (path for path, values in flat(matrix) if values == []):
        reading.refuse(("matrix", *path.split(".")), "an empty list asks nothing; give its values")
    lists = {path: values for path, values in flat(matrix) if isinstance(values, list)}
    for path, value in ((path, value) for path, values in lists.items() for value in twice(values)):
        reading.refuse(("matrix", *path.split(".")), f"{value!r} stands there more than once")
    if (number := prod(map(len, lists.values()))) > MOST_ASKED:
        reading.refuse(("matrix",), f"its lists make {number} questions, above {MOST_ASKED}: ask fewer of one file")
        return
    for name, table in combinations(matrix):
        tables.setdefault(name, (("matrix",), table))
    for name, (path, table) in tables.items():
        if not isinstance(table, Mapping):
            reading.refuse(path, f"{table!r} is no table of what is changed")
            continue
        if not isinstance(purpose := table.get("purpose", ""), str):
            reading.refuse((*path, "purpose"), f"purpose is {purpose!r}; it must be text")
        if strange := [key for key in ("base", "name", "questions", "matrix") if key in table]:
            reading.refuse((*path, strange[0]), f"no field '{strange[0]}': a question changes fields of its study")
            continue
        within = Reading(known=reading.known, hidden=reading.hidden)
        try:
            changes = nested({name: value for name, value in table.items() if name != "purpose"})
        except UserError as error:
            reading.refuse(path, str(error))
            continue
        if not changes:
            reading.refuse(path, "it changes nothing, and a question is its study with something changed")
            continue
        changes = {name: value for name, value in changes.items() if name not in unsure}
        asked = changed_study(changes, study, within, checked=checked)
        reading.faults.extend(Fault((*path, *fault.path), fault.said) for fault in within.faults)
        if asked is not None:
            yield name, replace(asked, about=str(purpose))


def _table(said: Mapping[str, Any], name: str, reading: Reading) -> Mapping[str, Any]:
    table = said.get(name, {})
    if isinstance(table, Mapping):
        return table
    reading.refuse((name,), f"{table!r} is no table, written [{name}]")
    return {}


def setting_names(record: Any, within: str = "") -> Iterator[str]:
    """Every field that a setting may name, as a path; lessons are records of their own and are chosen by profile.

    >>> from flows.study.profiles import DEMO
    >>> [name for name in setting_names(DEMO) if name.startswith("passk.")]
    ['passk.ks', 'passk.draws', 'passk.seed']
    """
    for one in fields(record):
        value = getattr(record, one.name)
        if is_dataclass(value):
            yield from setting_names(value, f"{within}{one.name}.")
        elif within or one.name not in (*HIDDEN[Profile], "lessons"):
            yield f"{within}{one.name}"

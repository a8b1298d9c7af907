"""A study as tables and as a file: changed by tables, compared, written in full, and read from `study.toml`.

A file is checked completely before anything is made, and each mistake is reported with its line. The built-in profiles
are such files. docs/studies.md documents the fields.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path as FilePath
from typing import Any

import tomli_w

from flows.study import checks
from flows.study.objectives import changes, objectives_of
from flows.study.profile import Benchmark, Profile
from flows.study.reading import (
    HIDDEN,
    Fault,
    Path,
    Tables,
    Written,
    apart,
    collected,
    flat,
    line_of,
    merged,
    named,
    nested,
    spelt,
    validated,
    without_name,
)
from flows.study.scaffolds import arm_table, own_arms
from storage.errors import UserError
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.ranges import check_name
from tasks.domain.scaffolds import SCAFFOLDS


def changed(
    base: Profile | None,
    given: Tables,
    faults: list[Fault],
    *,
    benchmarks: Sequence[Benchmark] = (),
    arms: Tables | None = None,
) -> Profile | None:
    """Return a study with the fields that the tables give; None if there is a mistake. benchmarks: further ones that
    may be named. arms: tables that change arms without choosing any. Tables in `given` also choose the study's arms."""
    given, old = dict(given), fields_of(base) if base else {}
    faults += [Fault((name,), f"no field '{name}' that could be changed here") for name in HIDDEN if name in given]
    arm_tables = given.pop("arms", {})
    if not isinstance(arm_tables, Mapping):
        given["arms"], arm_tables = arm_tables, {}
    elif arm_tables:
        given["arms"] = [*arm_tables]
    own = own_arms(base.own if base else (), merged(arm_tables, arms or {}), given.pop("scaffolds", {}), faults)
    for name, known in (("benchmarks", spelt(tuple(benchmarks)) or {}), ("lessons", {})):
        if name in given:
            old[name] = named(given.pop(name), old.get(name) or {}, known, (name,), faults)
    objectives = given.pop("objectives", None)
    labels = (
        {name: getattr(base, name) for name in HIDDEN if name != "own"} if base else {"name": "study", "purpose": ""}
    )
    study = validated(Profile, {**merged(old, given), **labels, "own": own}, (), faults)
    if study is None or faults:
        return None
    study = replace(study, objectives=objectives_of(study, base, objectives, faults))
    faults += [] if faults else checks.faults_of(study)
    if not faults:
        before = spelt(base.training) if base else {f.name: spelt(f.default) for f in fields(LearnerConfig)}
        now = spelt(study.training)
        faults += checks.unread(study, [name for name in given.get("training", {}) if now[name] != before[name]])
    return None if faults else study


#: Tables that are written only if they are not empty.
OMITTED = ("budget", "objectives", "scaffolds", "tracking")


def tables_of(study: Profile) -> dict[str, Any]:
    """Return every field, as in `study.toml`, without labels."""
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
    """Return the fields that differ, by path. A field that one study lacks is None there."""
    return apart(_with_arms(before), _with_arms(after))


def written_out(study: Profile, without: Collection[str] = ()) -> str:
    """Return a study as the text of a file. without: tables to leave out."""
    tables = {name: table for name, table in tables_of(study).items() if name not in without}
    return tomli_w.dumps(tables, multiline_strings=True)


def value_text(value: object) -> str:
    return "–" if value is None else repr(value) if isinstance(value, str) else str(value)


def fields_of(study: Profile) -> dict[str, Any]:
    """Return the fields of a study as tables, without labels, its own arms and objectives."""
    names = [f.name for f in fields(study) if f.name not in (*HIDDEN, "objectives")]
    return {name: spelt(getattr(study, name)) for name in names}


def _with_arms(study: Profile) -> dict[str, Any]:
    arms = {f"arms.{arm.name}": table for arm in study.own if (table := arm_table(arm))}
    return {**tables_of(study), "arms": [*study.arms], **arms}


#: Entries of a file in addition to the fields of its study.
BESIDE = ("base", "name", "purpose", "questions", "matrix")
#: A value that may be part of the name of a matrix's question.
WORD = re.compile(r"[!-~]{1,60}")
#: Fields that name files and folders.
PATHS = ("sources", "model", "adapter", "reward", "encoder.name")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A study as read from a file, with its name. questions: variants of the study, by name."""

    name: str
    study: Profile
    questions: Mapping[str, Profile] = field(default_factory=dict)


def read_study(
    text: str,
    where: str,
    *,
    bases: Callable[[str], Profile],
    benchmarks: tuple[Benchmark, ...] = (),
    folder: FilePath | None = None,
) -> StudyFile:
    """Read the text of a study file. Raise UserError with all mistakes and their lines. where: the file's name, for
    errors. bases: returns a profile by its name. benchmarks: names that are allowed. folder: base of relative paths."""
    faults: list[Fault] = []
    try:
        entries = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        both = re.search(r"Cannot declare \('(arms|objectives|benchmarks|lessons)', '", str(error))
        hint = f"; a list `{both[1]} = [...]` and tables `[{both[1]}.NAME]` exclude each other" if both else ""
        raise UserError(f"{where}: invalid TOML: {error}{hint}") from None
    entries = whole_paths(entries, folder) if folder else entries
    beside = {name: entries.pop(name) for name in BESIDE if name in entries}
    for name in beside:
        if not isinstance(beside[name], kind := Mapping if name in ("questions", "matrix") else str):
            faults.append(Fault((name,), f"{beside[name]!r} is no {'table' if kind is Mapping else 'text'}"))
    base, study, questions = None, None, dict[str, Profile]()
    if not faults and "base" in beside:
        with collected(faults, "base"):
            base = bases(beside["base"])
    if not faults and (study := changed(base, entries, faults, benchmarks=benchmarks)):
        questions = dict(_questions(beside, study, benchmarks, faults))
    if study is None or faults:
        Written(where, text).refuse(sorted(faults, key=lambda fault: line_of(text, fault.path) or 0))
    return StudyFile(
        name=beside.get("name", ""), study=replace(study, about=beside.get("purpose", "")), questions=questions
    )


def _questions(
    beside: Tables, study: Profile, benchmarks: Sequence[Benchmark], faults: list[Fault]
) -> Iterator[tuple[str, Profile]]:
    """Yield the questions of `[questions.NAME]`, and one for each combination of the values in `[matrix]`."""
    tables: dict[str, tuple[Path, Any]] = {}
    for name, table in beside.get("questions", {}).items():
        with collected(faults, "questions", name):
            check_name(name)
        tables[name] = (("questions", name), table)
    with collected(faults, "matrix"):
        tables |= {name: (("matrix",), nested(values)) for name, values in combinations(beside.get("matrix", {}))}
    for name, (path, table) in tables.items():
        if not isinstance(table, Mapping):
            faults.append(Fault(path, f"{table!r} is no table"))
            continue
        within: list[Fault] = []
        given = {key: value for key, value in table.items() if key != "purpose"}
        question = changed(study, given, within, benchmarks=benchmarks)
        faults += [Fault((*path, *fault.path), fault.sentence) for fault in within]
        if question is not None:
            yield name, replace(question, about=str(table.get("purpose", beside.get("purpose", ""))))


def combinations(matrix: Tables) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each combination of a matrix's values: its name, and the values by path.

    >>> [name for name, _ in combinations({"rollouts.temperature": [0.7, 1.0], "seeds": [[0], [1]]})]
    ['temperature=0.7,seeds=0', 'temperature=0.7,seeds=1', 'temperature=1.0,seeds=0', 'temperature=1.0,seeds=1']
    """
    axes = {path: values if isinstance(values, list) else [values] for path, values in flat(matrix)}
    last = [path.rpartition(".")[2] for path in axes]
    names = [word if last.count(word) == 1 else path for path, word in zip(axes, last, strict=True)]
    for values in product(*(enumerate(values, 1) for values in axes.values())) if axes else ():
        words = (f"{name}={_word(value, nth)}" for name, (nth, value) in zip(names, values, strict=True))
        yield ",".join(words), dict(zip(axes, (value for _, value in values), strict=True))


def _word(value: object, nth: int) -> str:
    """Return a value of the matrix as a part of a question's name. A long text gives its position in the list.

    >>> _word(["panel", "thinking"], 1), _word("Solve it: {problem}", 2)
    ('panel+thinking', '#2')
    """
    word = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return word if WORD.fullmatch(word) else f"#{nth}"


def whole_paths(value: Any, folder: FilePath, field: str = "") -> Any:
    """Return the tables of a file, or the value of a field, with paths made absolute from `folder`. A word without a
    slash names an entry of VARBAND_MODELS or a published set, unless a file of that name exists."""
    if isinstance(value, Mapping):
        return {name: whole_paths(one, folder, f"{field}.{name}") for name, one in value.items()}
    if isinstance(value, list):
        return [whole_paths(one, folder, field) for one in value]
    if isinstance(value, str) and field.endswith(tuple(f".{name}" for name in PATHS)):
        path = folder / value
        return str(path.absolute()) if path.is_file() or ("/" in value and path.is_dir()) else value
    return value

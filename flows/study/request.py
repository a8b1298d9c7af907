"""A request for a study: a word (a built-in profile or `FILE.toml`, perhaps with a question after a slash) and changes
to it. Command line, forms and records of runs all have this form."""

import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from flows.study.files import StudyFile, read_study, value_text
from flows.study.profile import Profile
from flows.study.profiles import BENCHMARKS, PROFILES, questions
from flows.study.reading import Fault, Written, apart, collected
from flows.study.resolve import Study, resolve
from flows.study.settings import SHORT, overridden, short_settings
from storage.artifacts.ref import KINDS
from storage.artifacts.store import Store
from storage.errors import UserError, check_known
from storage.records.record import Entry, entries
from storage.records.runs import all_runs, now
from tasks.domain.ranges import check_name

ENDING = ".toml"
#: The endings of names of runs and artifacts.
IDENTIFIER = re.compile(r".+-([0-9a-f]{8}|[0-9a-f]{16})")


def profile_named(name: str) -> Profile:
    """Return a built-in profile. Raise UserError for any other name."""
    check_known("profile", name, PROFILES)
    return PROFILES[name]


def file_of(word: str) -> tuple[Path, str] | None:
    """Return the file and the question that a word names; None for a built-in name.

    >>> file_of("mine/study.toml/seeds"), file_of("demo/objectives")
    ((PosixPath('mine/study.toml'), 'seeds'), None)
    """
    found = re.fullmatch(rf"(.*?{re.escape(ENDING)})(?:/(.*))?", word, re.DOTALL)
    return (Path(found[1]), found[2] or "") if found else None


def named_in(text: str) -> str:
    """Return the name at the top of a study file; empty if there is none or the text is not TOML.

    >>> named_in("name = 'mine'"), named_in("[encoder]\\nname = 'all-mpnet-base-v2'")
    ('mine', '')
    """
    try:
        name = tomllib.loads(text).get("name", "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""


def text_of(word: str) -> str:
    """Return the text of a word's file; empty for a built-in name. Raise UserError if the file cannot be read."""
    if (found := file_of(word)) is None:
        return ""
    path, _ = found
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; create it with: varband study new {path.stem}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def profile_of(word: str, text: str | None = None) -> Profile:
    """Return the built-in profile of a name, or the profile of a study file. Raise UserError with all mistakes of the
    file. text: of the file, if it was read before."""
    if (found := file_of(word)) is None:
        return profile_named(word)
    path, question = found
    read = _read(path, text_of(word) if text is None else text)
    study = replace(read.study, title=read.name or path.stem)
    if not question:
        return study
    known = {**_open_questions(study), **read.questions}
    check_known(f"question of {path.name}", question, known)
    chosen = known[question]
    about = chosen.about if question in read.questions else chosen.purpose
    return replace(chosen, name=study.name, purpose=study.purpose, about=about, title=f"{study.title}/{question}")


def questions_of(word: str) -> list[str]:
    """Return the questions that a file itself defines."""
    found = file_of(word)
    return list(_read(found[0], text_of(word)).questions) if found else []


def check_study_name(title: str) -> None:
    """Raise UserError for a name that is invalid, or that a built-in profile, a run or an artifact could have."""
    check_name(title)
    if title in PROFILES or title in KINDS or IDENTIFIER.fullmatch(title):
        raise UserError(f"'{title}' is the name of a built-in profile, an artifact or a run; choose another name")


def _read(path: Path, text: str) -> StudyFile:
    folder = path.resolve().parent
    read = read_study(text, path.name, bases=profile_named, benchmarks=BENCHMARKS, folder=folder)
    faults: list[Fault] = []
    with collected(faults, "name"):
        check_study_name(read.name or path.stem)
    for name in {*_open_questions(read.study)} & {*read.questions} if read.questions else ():
        faults.append(Fault(("questions", name), f"'{name}' is a question of every study; give yours another name"))
    if faults:
        Written(path.name, text).refuse(faults)
    return read


def _open_questions(study: Profile) -> dict[str, Profile]:
    return {one.name.partition("/")[2]: one for one in questions(replace(study, name="own"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a study. All fields are plain values, so that it can be stored as JSON, and none is secret. Empty
    fields keep the profile's values. profile: a built-in one, or a study file; text: that file's text at the time of
    the request. name: a label. encoder: folder, hub id or hash of the study's encoder."""

    profile: str
    settings: tuple[str, ...] = ()
    data: str | None = None
    encoder: str | None = None
    text: str = ""
    name: str = ""

    def study(self, store: Store, *, planning: bool = False) -> Study:
        """Return the study with its inputs found. Raise UserError for any wrong input. planning: see `resolve`."""
        profile = overridden(profile_of(self.profile, self.text), self.settings)
        if self.name:
            check_study_name(self.name)
            profile = replace(profile, title=self.name)
        path, question = file_of(self.profile) or (Path(self.profile), "")
        study = resolve(
            profile,
            store,
            data=Path(self.data) if self.data else None,
            encoder=self.encoder,
            planning=planning,
            written=Written(path.name, self.text, question, self.settings),
        )
        before = {"registered": registered(study, store.root), "earlier_looks": earlier_looks(study, store.root)}
        return replace(study, command=self.command(), beside=beside(study, store.root), **before)

    def command(self) -> str:
        words = ["varband", "run", self.profile]
        for option in ("name", "data", "encoder"):
            words += [f"--{option}", value] if (value := getattr(self, option)) else []
        words += [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join(words)

    def as_json(self) -> dict[str, object]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Return a stored request. Raise UserError for a request of a later version. Requests of earlier versions
        contain `plain`, and short options in addition to the settings."""
        short = {name: kept[name] for name in SHORT if name in kept}
        known = {f.name: kept[f.name] for f in fields(cls) if f.name in kept}
        if (unknown := {*kept} - {*short} - {*known} - {"plain"}) or "profile" not in kept:
            words = ", ".join(sorted(unknown)) or "no profile"
            raise UserError(f"another version of Varband started this run ({words}): run the study again")
        return replace(cls(**known), settings=(*known.get("settings", ()), *short_settings(short)))


# ---- preregistration: a study's entry in the register, and earlier reports on the same question

#: Settings that may grow after a look, because the confidence sequence of the difference of gains allows it.
GROWING = ("seeds", "pool.heldout_per_source", "pool.limit", "final.group_size")
RULE = (
    "One arm gains more than another if the 95 % confidence sequence of the difference of their gains at the last step,"
    " over problems and training seeds, excludes 0. Seeds, problems and rollouts may be added after any look."
)


def entry_of(study: Study, names: Iterable[str], rule: str, *, sampled: bool) -> Entry:
    profile = study.profile
    question = ". ".join(filter(None, (profile.about.rstrip("."), study.in_numbers)))
    about = {"study": profile.called, "question": question, "rule": rule or RULE, "names": tuple(names)}
    return Entry(**about, at=now(), sampled=sampled, settings=study.settings)


def registered(study: Study, root: Path) -> str:
    """Return a sentence: whether, when and by whom the study was registered, and which settings have changed."""
    try:
        own = [entry for entry in entries(root) if entry.study == study.profile.called]
    except UserError as error:
        return f"Whether it was registered before sampling is not known: {error}."
    found = next((entry for entry in reversed(own) if not entry.sampled), own[-1] if own else None)
    if found is None:
        return "Not registered before sampling."
    when = "after sampling had begun" if found.sampled else "before sampling"
    before, after = (tomllib.loads(text) for text in (found.settings, study.settings))
    moved = [f"{path}: {value_text(old)} → {value_text(new)}" for path, (old, new) in apart(before, after).items()]
    changed = f" Changed since: {'; '.join(moved)}." if moved else ""
    return f"Registered {when}, on {found.at[:10]} by {', '.join(found.names)}.{changed}"


def earlier_looks(study: Study, root: Path) -> tuple[str, ...]:
    """Return reports on the same question with fewer or other seeds, problems or rollouts, newest first."""

    def fixed(changes: Iterable[str]) -> set[str]:
        return {change for change in changes if not change.startswith(tuple(f"{path}: " for path in GROWING))}

    same = (run for run in all_runs(root) if run.profile == study.profile.called)
    return tuple(run.report for run in same if run.report and fixed(run.changes) == fixed(study.changes))


def beside(study: Study, root: Path) -> tuple[str, ...]:
    """Return `VALUE REPORT` for each report whose study differs only in its value of the same matrix."""
    name, _, own = study.profile.called.partition("/")
    axes = tuple(f".{part.partition('=')[0]}" for part in own.split(",") if "=" in part)

    def fixed(changes: Iterable[str]) -> set[str]:
        return {change for change in changes if not f".{change.partition(': ')[0]}".endswith(axes)}

    found: dict[str, str] = {}
    for run in all_runs(root) if axes else ():
        of, _, value = run.profile.partition("/")
        if of == name and "=" in value and value != own and run.report and fixed(run.changes) == fixed(study.changes):
            found.setdefault(value, run.report)
    return tuple(f"{value} {report}" for value, report in found.items())

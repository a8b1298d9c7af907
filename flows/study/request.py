"""A request for a study: the word that names it (a built-in profile, `FILE.toml`, or a question of one after a slash)
and changes to it, the same from the command line, a form and a run record."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from flows.study.changes import differences
from flows.study.files import StudyFile, prefixes, read_study
from flows.study.profile import Pool, Profile
from flows.study.profiles import BENCHMARKS, PROFILES, questions
from flows.study.resolve import Study, resolve
from flows.study.set_option import overridden
from storage.artifacts.ref import KINDS
from storage.artifacts.store import Store
from storage.errors import UserError, did_you_mean
from tasks.domain.ranges import check_name

ENDING = ".toml"
#: As runs and artifacts end.
IDENTIFIER = re.compile(r".+-([0-9a-f]{8}|[0-9a-f]{16})")


def profile_named(name: str) -> Profile:
    """Errors: UserError for a name that no built-in profile has."""
    if name in PROFILES:
        return PROFILES[name]
    hint = f"{did_you_mean(name, PROFILES)} (known: {', '.join(PROFILES)})"
    raise UserError(f"unknown profile '{name}'{hint}; a study of your own is a file NAME.toml, and no base of another")


def file_of(word: str) -> tuple[Path, str] | None:
    """The file and the question that a word names; None for a built-in name.

    >>> file_of("mine/study.toml/seeds"), file_of("demo/objectives")
    ((PosixPath('mine/study.toml'), 'seeds'), None)
    """
    found = re.fullmatch(rf"(.*?{re.escape(ENDING)})(?:/(.*))?", word, re.DOTALL)
    return (Path(found[1]), found[2] or "") if found else None


def named_in(text: str) -> str:
    """The name that a file gives itself, in its first table; empty without one, and for what is no TOML.

    >>> named_in("name = 'mine'"), named_in("[encoder]\\nname = 'all-mpnet-base-v2'")
    ('mine', '')
    """
    try:
        name = tomllib.loads(text).get("name", "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""


def word_of(text: str, question: str = "", default: str = "") -> str:
    """The word for a file of which there is only the text: it has the name that it gives itself, else the default."""
    return "/".join(filter(None, (f"{named_in(text) or default or 'study'}{ENDING}", question)))


def text_of(word: str) -> str:
    """The text of the file of a word, empty for a built-in name. Errors: UserError for a file that is not there."""
    if (found := file_of(word)) is None:
        return ""
    path, _ = found
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} is not there; write one with: varband study new {path.stem}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path.name}, line {line}: it is not written in UTF-8, as TOML is; save it so") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def profile_of(word: str, text: str) -> Profile:
    """text: of the file that the word names. Errors: UserError with all that is wrong with it."""
    if (found := file_of(word)) is None:
        return profile_named(word)
    return _with_paths(_as_written(*found, text), found[0].resolve().parent)


def beside(word: str, text: str) -> list[str]:
    """Return a sentence for each field that names a file beside the study's, which workers do not have."""
    if (found := file_of(word)) is None:
        return []
    path, question = found
    sent = _as_written(path, question, text)
    prefix = prefixes(path.name, text, question, ())
    words = "it lies beside the file here, and workers have the text alone; write its path there, or its id on the hub"
    found_here = _with_paths(sent, path.resolve().parent)
    return [f"{prefix(tuple(name.split('.')))}{words}" for name in differences(sent, found_here)]


def questions_of(word: str) -> list[str]:
    """Questions that a file asks itself."""
    found = file_of(word)
    return list(_read(found[0], text_of(word)).questions) if found else []


def check_study_name(title: str, where: str, way_out: str = 'write name = "…" in the file, or rename it') -> None:
    """Errors: UserError for a name that cannot be one, or that a built-in profile, a run or an artifact could have."""
    try:
        check_name(title)
    except UserError as error:
        raise UserError(f"{where}: {error}; {way_out}") from None
    if title in PROFILES:
        raise UserError(f"{where}: '{title}' is a built-in profile's name; {way_out}")
    if title in KINDS or IDENTIFIER.fullmatch(title):
        raise UserError(f"{where}: '{title}' could be taken for an artifact or a run; {way_out}")


def _as_written(path: Path, question: str, text: str) -> Profile:
    """The study of a file, or its question, with paths as the file has them."""
    read = _read(path, text)
    study = replace(read.study, title=read.name or path.stem)
    if not question:
        return study
    known = {**_open_questions(study), **read.questions}
    if question not in known:
        hint = did_you_mean(question, known)
        raise UserError(f"{path.name}: unknown question '{question}'{hint} (known: {', '.join(known)})")
    chosen = known[question]
    about = chosen.about if question in read.questions else chosen.purpose
    return replace(chosen, name=study.name, purpose=study.purpose, about=about, title=f"{study.title}/{question}")


def _read(path: Path, text: str) -> StudyFile:
    read = read_study(text, path.name, bases=profile_named, benchmarks=BENCHMARKS)
    prefix = prefixes(path.name, text, "", ())
    check_study_name(read.name or path.stem, prefix(("name",)).removesuffix(": ") or path.name)
    for name in sorted({*_open_questions(read.study)} & {*read.questions}) if read.questions else ():
        raise UserError(f"{prefix(('questions', name))}'{name}' is a question of every study; give yours another name")
    return read


def _open_questions(study: Profile) -> dict[str, Profile]:
    return {one.name.partition("/")[2]: one for one in questions(replace(study, name="own"))}


def _with_paths(study: Profile, folder: Path) -> Profile:
    """With paths of files beside the study's own written whole."""

    def at(name: str) -> str:
        return str(folder / name) if (folder / name).exists() and (folder / name).resolve() != folder else name

    def model(name: str) -> str:  # without a slash it is one of VARBAND_MODELS
        return at(name) if "/" in name else name

    def pool(one: Pool) -> Pool:
        return replace(one, sources=tuple(map(at, one.sources)))

    return replace(
        study,
        pool=pool(study.pool),
        lessons=tuple(replace(lesson, pool=pool(lesson.pool)) for lesson in study.lessons),
        benchmarks=tuple(replace(one, sources=tuple(map(at, one.sources))) for one in study.benchmarks),
        model=model(study.model),
        encoder=replace(study.encoder, name=model(study.encoder.name)),
        own=tuple(replace(arm, model=model(arm.model), adapter=model(arm.adapter)) for arm in study.own),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Plain values only, so that it can be kept as JSON. Empty means: as the profile has it. Holds no secret.

    profile: a built-in one, or the file of a study; text: of that file when the request was made. name: a label.
    """

    profile: str
    settings: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    pools: tuple[str, ...] = ()
    limit: int | None = None
    data: str | None = None
    model: str | None = None
    encoder: str | None = None
    engine: str = "auto"
    plain: bool = False
    text: str = ""
    name: str = ""

    def study(self, store: Store, *, planning: bool = False) -> Study:
        """planning: as resolve. Errors: UserError for whatever is unknown, missing or not what it should be."""
        settings = list(self.settings)
        settings += [f"arms={','.join(self.arms)}"] if self.arms else []
        settings += [f"seeds={','.join(map(str, self.seeds))},"] if self.seeds else []
        settings += [f"hardware.engine={self.engine}"] if self.engine != "auto" else []
        settings += [f"pool.limit={self.limit}"] if self.limit else []
        profile = overridden(profile_of(self.profile, self.text), settings)
        if self.name:
            check_study_name(self.name, "--name", "choose another")
            profile = replace(profile, title=self.name)
        path, question = file_of(self.profile) or (Path(self.profile), "")
        study = resolve(
            profile,
            store,
            model=_path(self.model),
            encoder=_path(self.encoder),
            data=_path(self.data),
            pools=[Path(p) for p in self.pools],
            planning=planning,
            prefix=prefixes(path.name, self.text, question, settings),
        )
        return replace(study, command=self.command())

    def command(self) -> str:
        """What asks for the same on the command line."""
        words = ["varband", "run", self.profile]
        for option, value in (
            ("name", self.name),
            ("arms", ",".join(self.arms)),
            ("seeds", ",".join(map(str, self.seeds))),
            ("limit", self.limit),
            ("data", self.data),
            ("model", self.model),
            ("encoder", self.encoder),
            ("engine", None if self.engine == "auto" else self.engine),
        ):
            words += [f"--{option}", str(value)] if value else []
        words += [word for pool in self.pools for word in ("--pool", pool)]
        words += [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join([*words, "--plain"] if self.plain else words)

    def as_json(self) -> dict[str, object]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, kept: dict[str, object]) -> Request:
        """Errors: UserError for a request of another version."""
        unknown = set(kept) - {f.name for f in fields(cls)}
        if unknown or "profile" not in kept:
            words = ", ".join(sorted(unknown)) or "no profile"
            raise UserError(f"the run was requested by another version ({words}): run it again")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in kept.items()})  # type: ignore[arg-type]


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None

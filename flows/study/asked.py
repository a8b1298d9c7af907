"""Studies by the word that asks for them: a built-in profile, `FILE.toml`, or a question of either after a slash."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

from flows.study.files import StudyFile, read_study
from flows.study.lines import said_at
from flows.study.profiles import BENCHMARKS
from flows.study.questions import PROFILES, questions
from flows.study.reading import NAME
from flows.study.shape import Pool, Profile
from flows.study.writing import differences
from storage.artifacts.ref import KINDS
from storage.errors import UserError, did_you_mean

ENDING = ".toml"


def profile_named(name: str) -> Profile:
    """Errors: UserError for a name that no built-in profile has."""
    try:
        return PROFILES[name]
    except KeyError:
        hint = did_you_mean(name, PROFILES)
        said = f"unknown profile '{name}'{hint} (known: {', '.join(PROFILES)}); a study of your own is a file NAME.toml"
        raise UserError(said) from None


def file_of(word: str) -> tuple[Path, str] | None:
    """The file and the question that a word asks for; null for a built-in name.

    >>> file_of("mine/study.toml/seeds"), file_of("demo/objectives")
    ((PosixPath('mine/study.toml'), 'seeds'), None)
    """
    said = re.fullmatch(rf"(.*?{re.escape(ENDING)})(?:/(.*))?", word, re.DOTALL)
    return (Path(said[1]), said[2] or "") if said else None


def named_in(text: str) -> str:
    """What a file says that it is called, in its first table; nothing where it says no name, or is no TOML.

    >>> named_in("name = 'mine'"), named_in("[encoder]\\nname = 'all-mpnet-base-v2'")
    ('mine', '')
    """
    try:
        name = tomllib.loads(text).get("name", "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""


def word_of(text: str, question: str = "", otherwise: str = "") -> str:
    """The word for a file of which there is only the text: it is called as it says itself, otherwise so."""
    return "/".join(filter(None, (f"{named_in(text) or otherwise or 'study'}{ENDING}", question)))


def text_of(word: str) -> str:
    """What the file of a word says now, nothing for a built-in name. Errors: UserError for a file that is not there."""
    if (asked := file_of(word)) is None:
        return ""
    try:
        return asked[0].read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{asked[0]} is not there; write one with: varband study new {asked[0].stem}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{asked[0].name}, line {line}: it is not written in UTF-8, as TOML is; save it so") from None
    except OSError as error:
        raise UserError(f"{asked[0]} cannot be read: {error.strerror}") from None


def profile_asked(word: str, text: str) -> Profile:
    """text: of the file that the word names. Errors: UserError with all that is wrong with it."""
    if (asked := file_of(word)) is None:
        return profile_named(word)
    return _placed(_unplaced(*asked, text), asked[0].resolve().parent)


def beside(word: str, text: str) -> list[str]:
    """What is said of fields that mean something beside the file of a word, to whom only its text is sent."""
    if (asked := file_of(word)) is None:
        return []
    path, question = asked
    sent = _unplaced(path, question, text)
    where = said_at(path.name, text, question, ())
    lies = (
        "it lies beside the file here, and workers have the text alone; write where it lies there, or its id on the hub"
    )
    found = differences(sent, _placed(sent, path.resolve().parent))
    return [f"{where(tuple(field.split('.')))}{lies}" for field in found]


def _unplaced(path: Path, question: str, text: str) -> Profile:
    """The study of a file, or its question, with paths as the file has them."""
    read = _read(path, text)
    study = replace(read.study, title=read.name or path.stem)
    if question:
        known = {**_everybodys(study), **read.questions}
        if question not in known:
            hint = did_you_mean(question, known)
            raise UserError(f"{path.name}: unknown question '{question}'{hint} (known: {', '.join(known)})")
        chosen = known[question]
        about = chosen.about if question in read.questions else chosen.purpose
        named = replace(chosen, name=study.name, purpose=study.purpose, about=about)
        study = replace(named, title=f"{study.title}/{question}")
    return study


def questions_of(word: str) -> list[str]:
    """Questions that a file asks itself."""
    asked = file_of(word)
    return list(_read(asked[0], text_of(word)).questions) if asked else []


def _read(path: Path, text: str) -> StudyFile:
    read = read_study(text, path.name, bases=profile_named, benchmarks=BENCHMARKS)
    at = said_at(path.name, text, "", ())
    check_name(read.name or path.stem, at(("name",)).removesuffix(": ") or path.name)
    for name in sorted({*_everybodys(read.study)} & {*read.questions}) if read.questions else ():
        said = f"'{name}' is asked of every study already; give yours another name"
        raise UserError(f"{at(('questions', name))}{said}")
    return read


#: As runs and artifacts end.
IDENTIFIER = re.compile(r".+-([0-9a-f]{8}|[0-9a-f]{16})")
IN_A_FILE = 'say name = "…" in the file, or rename it'


def check_name(title: str, where: str, way_out: str = IN_A_FILE) -> None:
    """Errors: UserError for a name that cannot be one, that a built-in profile has, or that a run's or an artifact's
    could be, of which `show` and `rm` take the run or the artifact."""
    if not NAME.fullmatch(title):
        raise UserError(
            f"{where}: {title[:80]!r} is no name of a study, which has letters, digits, dots and dashes; {way_out}"
        )
    if title in PROFILES:
        raise UserError(f"{where}: '{title}' is a built-in profile's name, and would be taken for it; {way_out}")
    if title in KINDS or IDENTIFIER.fullmatch(title):
        raise UserError(
            f"{where}: '{title}' could be taken for a kind of artifact, or one of them, or a run; {way_out}"
        )


def _everybodys(study: Profile) -> dict[str, Profile]:
    """The open questions, asked of this study."""
    return {one.name.partition("/")[2]: one for one in questions(replace(study, name="own"))}


def _placed(study: Profile, folder: Path) -> Profile:
    """With paths that are beside the file spelt whole."""

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

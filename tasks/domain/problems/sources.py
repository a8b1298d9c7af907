"""Sources of problems, one entry per published set. `tasks.engines` loads them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.artifacts.fingerprint import file_digest
from storage.errors import NotHere, UserError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published set of problems.

    file: its name in a data folder. only: value of the file's `source` column to keep; None keeps all rows. hub:
    dataset id, with configuration and split; `columns` maps our fields to the hub's. rule: where the gold is in the
    hub's column: `plain`, `hashes` (after ####), `boxed` (in the last box), `first`. keeps_out: evaluation sets whose
    problems are excluded from this source. eval_only: if a pool also has other sources, all problems of this one are
    held out. problems: published number of problems, for plans without the file.
    """

    name: str
    file: str
    hub: str
    only: str | None = None
    config: str | None = None
    split: str = "train"
    columns: tuple[tuple[str, str], ...] = (("problem", "problem"), ("gold", "answer"))
    rule: str = "plain"
    keeps_out: tuple[str, ...] = ()
    eval_only: bool = False
    problems: int = 0


_GSM8K = {
    "hub": "openai/gsm8k",
    "config": "main",
    "rule": "hashes",
    "columns": (("problem", "question"), ("gold", "answer")),
}
_ENTRIES: dict[str, dict[str, Any]] = {
    "hmmt_feb_2024": {"hub": "MathArena/hmmt_feb_2024", "problems": 30},
    "hmmt_feb_2025": {"hub": "MathArena/hmmt_feb_2025", "problems": 30},
    "aime24": {"hub": "HuggingFaceH4/aime_2024", "problems": 30},
    "aime25": {"hub": "yentinglin/aime_2025", "problems": 30},
    "olympiadbench": {
        "only": "olympiadbench",
        "hub": "Hothan/OlympiadBench",
        "problems": 674,
        "config": "OE_TO_maths_en_COMP",
        "rule": "first",
        "columns": (("problem", "question"), ("gold", "final_answer"), ("subject", "subfield")),
    },
    "amc": {"hub": "AI-MO/aimo-validation-amc", "problems": 83},
    "gsm8k_train": _GSM8K | {"problems": 7_473},
    "gsm8k_test": _GSM8K | {"problems": 1_319, "split": "test"},
    "math_train": {
        "hub": "EleutherAI/hendrycks_math",
        "problems": 7_496,
        "columns": (("problem", "problem"), ("gold", "solution"), ("level", "level"), ("subject", "type")),
        "rule": "boxed",
        "keeps_out": ("math500",),
    },
    "math500": {
        "hub": "HuggingFaceH4/MATH-500",
        "problems": 500,
        "split": "test",
        "eval_only": True,
        "columns": (("problem", "problem"), ("gold", "answer"), ("level", "level"), ("subject", "subject")),
    },
}
_FILES = {"olympiadbench": "olympiad_pool.jsonl"}
SOURCES = {name: Source(name=name, file=_FILES.get(name, f"{name}.jsonl"), **entry) for name, entry in _ENTRIES.items()}
#: Subjects of MATH, each a configuration of the hub's dataset.
MATH_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra"),
    "precalculus",
)
#: The pool of the published study.
OLYMPIAD = ("hmmt_feb_2024", "hmmt_feb_2025", "aime24", "aime25", "olympiadbench", "amc")
DATA_VARIABLE = "VARBAND_DATA"
#: Supported suffixes of problem files.
FORMATS = (".jsonl", ".json", ".ndjson", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source, identified by the hash of its content. guards: (name, sha256) of each excluded evaluation set."""

    name: str
    sha256: str
    only: str | None = None
    guards: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HubSpec(SourceSpec):
    """Problems from the hub. hub: (name, dataset id, commit) of the set, then of the evaluation sets it excludes."""

    hub: tuple[tuple[str, str, str], ...] = ()


def source_named(name: str) -> Source:
    try:
        return SOURCES[name]
    except KeyError:
        hint = did_you_mean(name, SOURCES)
        raise UserError(
            f"unknown source '{name}'{hint} (known: {', '.join(SOURCES)}; or a .jsonl or .parquet file)"
        ) from None


def source_spec(wish: Path | str, data: Path | None) -> tuple[SourceSpec, Path]:
    """Return spec and path of a file, or of a named source in the data folder. Raise UserError for a missing file."""
    path = Path(wish)
    written = path.suffix.lower() in FORMATS
    if written or path.is_file():
        if not path.is_file():
            raise UserError(f"pool file {path} does not exist")
        if not written:
            raise UserError(f"pool file {path}: its format is unknown; use {', '.join(FORMATS)}")
        entry = SOURCES.get(path.stem)
        guards = entry.keeps_out if entry else ()
        spec = SourceSpec(path.stem, file_digest(path), None, _guards(path.stem, guards, path.parent))
        return spec, path
    entry = source_named(str(wish))
    folder = data or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)
    if folder is None:
        raise NotHere(
            entry.name, f"source {entry.name}: say where {entry.file} lies with --data DIR, or set {DATA_VARIABLE}"
        )
    path = folder / entry.file
    if not path.is_file():
        raise NotHere(entry.name, f"source {entry.name}: {folder} has no {entry.file}")
    return SourceSpec(entry.name, file_digest(path), entry.only, _guards(entry.name, entry.keeps_out, folder)), path


def _guards(name: str, kept_out: tuple[str, ...], folder: Path) -> tuple[tuple[str, str], ...]:
    found = []
    for other in kept_out:
        path = folder / SOURCES[other].file
        if not path.is_file():
            raise NotHere(name, f"source {name}: {path.name} must lie beside it, so that its problems can be kept out")
        found.append((other, file_digest(path)))
    return tuple(found)

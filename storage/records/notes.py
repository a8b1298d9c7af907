"""The artifacts that each run needs, in `runs/<run>.jsonl`, one ref per line; they are kept until the run has finished.

The first line is a checksum of the rest, so that damaged notes never lead to a collection of needed artifacts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson

from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.records.record import keep
from storage.records.runs import all_runs, read_record, record_paths, run_path
from storage.roots import files_in, root_option

#: Kind of the first line.
SEAL = "noted"


def note_planned(root: Path, run: str, refs: Iterable[Ref]) -> None:
    lines = [str(ref) for ref in refs]
    content = b"".join(orjson.dumps(line) + b"\n" for line in (str(_seal(run, lines)), *lines))
    keep(root, notes_path(root, run), content)


def notes_path(root: Path, run: str) -> Path:
    return run_path(root, run).with_suffix(".jsonl")


def planned_refs(root: Path, run: str) -> list[Ref]:
    """Return a run's planned artifacts. Errors: UserError for a run without notes, or with damaged ones."""
    path = notes_path(root, run)
    if not path.exists():
        raise UserError(f"no run '{run}' under {root} noted what it needs (see: varband runs)")
    return noted(path)


def noted(path: Path) -> list[Ref]:
    """Read the notes of a run. Errors: UserError if the file is damaged."""
    try:
        lines = [str(orjson.loads(line)) for line in path.read_bytes().splitlines()]
        first, *others = map(Ref.parse, lines)
    except (orjson.JSONDecodeError, UserError, ValueError):
        raise _damaged(path) from None
    if first != _seal(path.stem, lines[1:]):
        raise _damaged(path)
    return others


def studies_of(root: Path) -> dict[str, list[str]]:
    """Return, by ref, the names of the studies that need an artifact, newest first."""
    found: dict[str, list[str]] = {}
    for run in all_runs(root):
        with suppress(UserError, FileNotFoundError):
            for ref in noted(notes_path(root, run.id)):
                if run.profile not in (names := found.setdefault(str(ref), [])):
                    names.append(run.profile)
    return found


def unfinished(root: Path, but: str = "") -> set[Ref]:
    """Return the artifacts that unfinished runs need, except run `but`; includes runs without a record (imports).
    Errors: UserError if a record or notes are damaged or missing."""
    notes = {path.stem: path for path in files_in(root / "runs", ".jsonl")}
    for path in record_paths(root):
        try:
            run = read_record(path)
        except UserError as error:
            raise UserError(
                f"{error}, so what that run needs is not known and nothing is collected; mend or remove it"
            ) from None
        if run.state == "finished" or run.id == but:
            notes.pop(run.id, None)
        elif run.id not in notes:
            raise UserError(
                f"run {run.id} is {run.shown_state}, and an earlier version did not note what it needs: nothing is"
                f" collected; `varband resume {run.id}{root_option(root)}` notes it, or remove {path}"
            )
    return {ref for path in notes.values() for ref in noted(path)}


def _seal(run: str, lines: Iterable[str]) -> Ref:
    return Ref(SEAL, hashlib.sha256("\n".join((run, *lines)).encode()).hexdigest()[:16])


def _damaged(path: Path) -> UserError:
    run, root = path.stem, path.parent.parent
    return UserError(
        f"{path}: no notes of what run {run} needs, or not all of them; `varband resume {run}{root_option(root)}`"
        " writes them anew"
    )

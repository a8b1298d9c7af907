"""What each run needs, in `runs/<run>.jsonl`, a ref a line: kept from the start of the run until it has finished.

The first line holds a checksum of the rest, so that a collection never takes what a paused study needs because its
notes were cut or replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import orjson

from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.records.record import keep
from storage.records.runs import all_runs, read_record, record_paths, run_path
from storage.roots import files_in, read_whole, root_option

#: Kind of the first line, so that a version which knows no checksum takes it for one more artifact.
SEAL = "noted"


def note_planned(root: Path, run: str, refs: Iterable[Ref]) -> None:
    lines = [str(ref) for ref in refs]
    content = b"".join(orjson.dumps(line) + b"\n" for line in (str(_seal(run, lines)), *lines))
    keep(root, notes_path(root, run), content)


def notes_path(root: Path, run: str) -> Path:
    return run_path(root, run).with_suffix(".jsonl")


def planned_refs(root: Path, run: str) -> list[Ref]:
    """Errors: UserError for a run without notes, or with damaged ones."""
    path = notes_path(root, run)
    if not path.exists():
        raise UserError(f"no run '{run}' under {root} noted what it needs (see: varband runs)")
    return noted(path)


def noted(path: Path) -> list[Ref]:
    """Errors: UserError if the file is damaged. Notes of early versions have no checksum, but as many lines as their
    run has stages."""
    try:
        lines = [str(orjson.loads(line)) for line in read_whole(path).splitlines()]
        first, *others = map(Ref.parse, lines)
    except (orjson.JSONDecodeError, UserError, ValueError):
        raise _damaged(path) from None
    if first.kind == SEAL:
        if first != _seal(path.stem, lines[1:]):
            raise _damaged(path)
        return others
    record = path.with_suffix(".json")
    if record.exists() and len(lines) < read_record(record).stages:
        raise _damaged(path)
    return [first, *others]


def _readable(path: Path) -> list[Ref] | None:
    """None for notes that are missing or damaged."""
    try:
        return noted(path) if path.exists() else None
    except UserError:
        return None


def studies_of(root: Path) -> dict[str, list[str]]:
    """Return the names of the studies whose runs need an artifact, by ref, newest first."""
    found: dict[str, list[str]] = {}
    for run in all_runs(root):
        for ref in _readable(notes_path(root, run.id)) or ():
            names = found.setdefault(str(ref), [])
            if run.profile not in names:
                names.append(run.profile)
    return found


def studies_with_rows(root: Path, there: Iterable[Ref]) -> list[str]:
    """Return the names of the studies to which some of these artifacts may belong: those with a report among them, and
    those whose runs noted one. Notes that are missing or damaged may have named any."""
    refs = set(there)
    found = {ref.fingerprint[:8]: str(ref) for ref in sorted(refs) if ref.kind == "report"}
    for run in reversed(all_runs(root)):
        study, path = run.id.rpartition("-")[2], notes_path(root, run.id)
        needed = path.exists() or run.state != "finished"
        if (listed := _readable(path)) is not None:
            needed = not refs.isdisjoint(listed)
        if study in found or needed:
            found[study] = run.profile
    return [*found.values()]


def unfinished(root: Path, but: str = "") -> set[Ref]:
    """Return what every run except one needs that has not finished, or has no record (an import of published files).

    Errors: UserError where a record or notes are damaged or missing.
    """
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

"""What each run needs, in `runs/<run>.jsonl`, a ref a line: kept from when it starts until it has finished.

The first line seals the rest. Notes that were cut short, emptied or put in another run's place would else say that less
is needed, and a collection would take what a parked study waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import orjson

from storage.artifacts.ref import Ref
from storage.durable import files_in
from storage.errors import UserError
from storage.records.record import keep
from storage.records.runs import all_runs, read_record, record_paths, run_path
from storage.roots import read_whole, root_option

#: Kind of the first line, so that a version which knows no seals takes it for one more artifact.
SEAL = "noted"


def note_planned(root: Path, run: str, refs: Iterable[Ref]) -> None:
    """Whole or not at all."""
    path = notes_path(root, run)
    lines = [str(ref) for ref in refs]
    content = b"".join(orjson.dumps(line) + b"\n" for line in (str(_seal(run, lines)), *lines))
    keep(root, path, content)


def notes_path(root: Path, run: str) -> Path:
    return run_path(root, run).with_suffix(".jsonl")


def planned_refs(root: Path, run: str) -> list[Ref]:
    """Errors: UserError for a run that noted nothing, or whose notes are damaged."""
    path = notes_path(root, run)
    if not path.exists():
        raise UserError(f"no run '{run}' under {root} noted what it needs (see: varband runs)")
    return noted(path)


def noted(path: Path) -> list[Ref]:
    """Errors: UserError that names the file if it is not what a run wrote. Those of earlier versions have no seal; as
    many as the run has stages they have."""
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


def studies_of(root: Path) -> dict[str, list[str]]:
    """Names of the studies whose runs need an artifact, by ref, newest first; damaged notes name none."""
    found: dict[str, list[str]] = {}
    for run in all_runs(root):
        path = notes_path(root, run.id)
        try:
            refs = noted(path) if path.exists() else []
        except UserError:
            continue
        for ref in refs:
            names = found.setdefault(str(ref), [])
            if run.profile not in names:
                names.append(run.profile)
    return found


def studies_with_rows(root: Path, there: Iterable[Ref]) -> list[str]:
    """What the studies are called to which some of these artifacts belong, one a study: those with a report among them,
    and those whose runs noted one, however they ended. Notes that are lacking or damaged may have named any."""
    refs = set(there)
    found = {ref.fingerprint[:8]: str(ref) for ref in sorted(refs) if ref.kind == "report"}
    for run in reversed(all_runs(root)):
        study, path = run.id.rpartition("-")[2], notes_path(root, run.id)
        try:
            needed = any(ref in refs for ref in noted(path)) if path.exists() else run.state != "finished"
        except UserError:
            needed = True
        if study in found or needed:
            found[study] = run.profile
    return [*found.values()]


def unfinished(root: Path, but: str = "") -> set[Ref]:
    """What every run but one needs that has not finished, or that has no record (an import of published files).

    Errors: UserError where a record or notes cannot be read, or are missing.
    """
    records = record_paths(root)
    notes = {path.stem: path for path in files_in(root / "runs", ".jsonl")}
    for path in records:
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

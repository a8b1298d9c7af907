"""Runs: one small JSON file for each, `<root>/runs/<id>.json`, for users and dashboards.

The id of a run is its profile and the fingerprint of its report. So the same command is the same run, whatever its
budget and however often it was interrupted. The store decides what is reused, not this record.
"""

import functools
import hashlib
import re
import socket
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson
import psutil
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from storage.artifacts.manifest import Moment
from storage.artifacts.ref import Ref
from storage.artifacts.rows import nullable
from storage.errors import Notice, UserError
from storage.mirror import mirror_of
from storage.records.record import Record, keep, set_aside
from storage.roots import files_in, root_option

#: Seconds without a heartbeat after which a run is shown as crashed.
SILENCE_SECONDS = 90.0
ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
#: Most characters of a run's changes in lists; `varband study diff` prints all.
CHANGED = 320
State = Literal["queued", "running", "parked", "interrupted", "finished", "failed", "crashed"]


class Amounts(BaseModel):
    """Amounts that a run spends, in the units of budgets, prices, charges and forecasts. Users see a field's title."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tokens: float = Field(default=0.0, title="tokens")  # of prompts and completions
    gpu_hours: float = Field(default=0.0, title="GPU-hours")  # devices × hours
    usd: float = Field(default=0.0, title="US dollars")


#: The names of the units, in display order.
UNITS = {name: str(field.title) for name, field in Amounts.model_fields.items()}


class Run(Record):
    """The record of a run. `state`: as the run's process last wrote it. `current_state`: the state now."""

    NAME = "run record"
    id: str
    profile: str  # name of the study, of its file, or of the profile
    changes: tuple[str, ...] = ()  # differences from the profile that the study is based on
    request: dict[str, object]  # arguments for `varband resume`
    state: State
    why: str = ""  # a sentence on the state, for states that need one
    at: str = ""  # title of the current stage, or of the last one
    stages: int = 0
    stages_done: int = 0
    spent: Amounts = Amounts()
    budget: dict[str, float] = Field(
        default_factory=dict
    )  # limits of the last attempt, those of the study included, by name of Amounts
    missing: Amounts | None = None  # estimate of the remaining cost, if there is one
    report: str | None = None
    started: Moment
    heartbeat: Moment
    host: str
    pid: int = Field(gt=0, lt=2**31)
    attempts: int = 1
    flow_run: str | None = None  # its id in Prefect
    job: str | None = None  # its id in the cluster's queue
    tracked_as: str = ""  # group of its runs in experiment trackers

    @property
    def current_state(self) -> State:
        """Return `crashed` if the state is `running` but the process is gone or silent; otherwise `state`."""
        if self.state != "running":
            return self.state
        if self.host == socket.gethostname() and not psutil.pid_exists(self.pid):
            return "crashed"
        silent = (datetime.now(UTC) - datetime.fromisoformat(self.heartbeat)).total_seconds()
        return "crashed" if silent > SILENCE_SECONDS else "running"


RUNS = nullable(
    "id str, state str, changed str, profile str, why str, at str, stages_done int, stages int",
    *(f"{unit} real" for unit in UNITS),
    "started str, heartbeat str, report str, job str",
)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_id(profile: str, report: Ref) -> str:
    """Return the id of a run.

    >>> run_id("demo", Ref("report", "4f1c2a9b00d1e2f3"))
    'demo-4f1c2a9b'
    >>> run_id("first..draft", Ref("report", "4f1c2a9b00d1e2f3"))
    'first.draft-4f1c2a9b'
    """
    name = re.sub(r"\.\.+", ".", re.sub(r"[^a-z0-9._-]", "-", profile.lower())).strip("-.") or "run"
    return f"{name[:80]}-{report.fingerprint[:8]}"


def run_path(root: Path, name: str) -> Path:
    """Return the path of a run's record. Raise UserError for a name that is no run id and could leave the folder."""
    if not ID.fullmatch(name) or ".." in name:
        raise UserError(f"'{name[:80]!s}' is not a run's id; an id looks like demo-4f1c2a9b (see: varband runs)")
    return root / "runs" / f"{name}.json"


def read_run(root: Path, name: str) -> Run:
    path = run_path(root, name)
    _sync(root)
    try:
        return read_record(path)
    except FileNotFoundError:
        known = [r.id for r in all_runs(root)][:8]
        raise UserError(f"no run '{name}' under {root} (known: {', '.join(known) or 'none'})") from None


def read_record(path: Path) -> Run:
    """Read a run's record. Raise UserError if the file is not the record of the run in its name, and OSError."""
    run = Run.read(path)
    if run.id != path.stem:
        raise UserError(f"{path} is the record of another run ({run.id})")
    return run


def earlier_attempt(root: Path, name: str) -> Run | None:
    """Return the record of a run's last attempt, or None. A damaged record is moved away; its charges stay."""
    path = run_path(root, name)
    _sync(root)
    try:
        return read_record(path)
    except FileNotFoundError:
        return None
    except UserError as error:
        notice = f"{error}: moved to {set_aside(root, path)}; a new record is written"
        warnings.warn(Notice(notice), stacklevel=2)
        return None


def write_run(root: Path, run: Run) -> None:
    run.write(root, run_path(root, run.id))


def record_paths(root: Path) -> list[Path]:
    _sync(root)
    return files_in(root / "runs", ".json")


@functools.lru_cache(maxsize=20_000)
def _read(path: Path, inode: int, mtime_ns: int) -> Run:
    """Read a record. Records are cached by inode and time, because a record is replaced and never changed in place."""
    return read_record(path)


def all_runs(root: Path) -> list[Run]:
    """Return the runs of a root, newest first. Print a notice for each record that cannot be read."""
    found = []
    for path in record_paths(root):
        try:
            at = path.stat()
            found.append(_read(path, at.st_ino, at.st_mtime_ns))
        except FileNotFoundError:  # it was removed in the meantime
            continue
        except (UserError, OSError) as error:
            warnings.warn(Notice(f"run not listed: {error}"), stacklevel=2)
    return sorted(found, key=lambda r: r.started, reverse=True)


def rarest_first(changes: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Sort the changes of each study. Changes that are rarest among all studies come first.

    >>> rarest_first([("steps: 40 → 8", "rate: 1 → 2"), ("steps: 40 → 8",)])
    [('rate: 1 → 2', 'steps: 40 → 8'), ('steps: 40 → 8',)]
    """
    number = Counter(change for one in changes for change in dict.fromkeys(one))
    return [tuple(sorted(one, key=number.__getitem__)) for one in changes]


def runs_table(root: Path) -> pa.Table:
    """Return one row per run with its current state, for dashboards. Schema: RUNS."""
    found, rows = all_runs(root), []
    for run, changes in zip(found, rarest_first([run.changes for run in found]), strict=True):
        changed = textwrap.shorten("; ".join(changes), CHANGED, placeholder="…")
        derived = {"state": run.current_state, "changed": changed}
        rows.append(run.model_dump(include=set(RUNS.names)) | run.spent.model_dump() | derived)
    return pa.Table.from_pylist(rows, schema=RUNS)


def _sync(root: Path) -> None:
    if mirror := mirror_of(root):
        mirror.follow("runs")


# ---- runs by an id, the beginning of an id, or the name of a study, which several runs may have


def runs_named(root: Path, text: str) -> list[Run]:
    """Return the run with this id, or else all runs of this study, or else those whose id starts so; newest first."""
    runs = all_runs(root)
    for fits in (lambda run: run.id == text, lambda run: run.profile == text):
        if found := [*filter(fits, runs)]:
            return found
    return [run for run in runs if text and run.id.startswith(text)]


def run_named(root: Path, text: str) -> Run | None:
    """Return the run with this id or study name, or None. Raise UserError with the ids if several runs match."""
    found = runs_named(root, text)
    if len(found) > 1:
        raise UserError(f"{_several(text, found)}; give the id of one run")
    return found[0] if found else None


def run_to_read(root: Path, text: str) -> Run | None:
    """Return the run that matches. Of several runs of a study, return the newest with a report. Errors: see
    run_named."""
    found = runs_named(root, text)
    taken = next((run for run in found if run.report is not None), None)
    if len(found) == 1 or taken is None or taken.profile != text:
        return run_named(root, text)
    notice = f"{_several(text, found)}. This is {taken.id}, the newest with a report; give an id to choose another"
    warnings.warn(Notice(notice), stacklevel=2)
    return taken


def _several(text: str, found: Sequence[Run]) -> str:
    ids = [f"{run.id} ({run.current_state})" for run in found[:8]] + ["…"] * (len(found) > 8)
    return f"'{text[:80]}' matches {len(found)} runs: {', '.join(ids)}"


# ---- the artifacts that each unfinished run needs, which must be kept: `runs/<run>.jsonl`, one ref per line
#
# The first line is a checksum of the rest, so that damaged notes never let needed artifacts be collected.

#: Kind of the first line, in place of an artifact's kind.
SEAL = "noted"


def note_planned(root: Path, run: str, refs: Iterable[Ref]) -> None:
    lines = [str(ref) for ref in refs]
    content = b"".join(orjson.dumps(line) + b"\n" for line in (str(_seal(run, lines)), *lines))
    keep(root, notes_path(root, run), content)


def notes_path(root: Path, run: str) -> Path:
    return run_path(root, run).with_suffix(".jsonl")


def planned_refs(root: Path, run: str) -> list[Ref]:
    """Return the artifacts that a run planned. Raise UserError if the run's notes are missing or damaged."""
    path = notes_path(root, run)
    if not path.exists():
        raise UserError(f"the list of artifacts that run '{run}' needs is not under {root} (see: varband runs)")
    return noted(path)


def noted(path: Path) -> list[Ref]:
    """Read the notes of a run. Raise UserError if the file is damaged."""
    try:
        lines = [str(orjson.loads(line)) for line in path.read_bytes().splitlines()]
        first, *others = map(Ref.parse, lines)
    except (orjson.JSONDecodeError, UserError, ValueError):
        raise _damaged(path) from None
    if first != _seal(path.stem, lines[1:]):
        raise _damaged(path)
    return others


def studies_of(root: Path) -> dict[str, list[str]]:
    """Return the names of the studies that need an artifact, by ref, newest first."""
    found: dict[str, list[str]] = {}
    for run in all_runs(root):
        with suppress(UserError, FileNotFoundError):
            for ref in noted(notes_path(root, run.id)):
                if run.profile not in (names := found.setdefault(str(ref), [])):
                    names.append(run.profile)
    return found


def unfinished(root: Path, but: str = "") -> set[Ref]:
    """Return the artifacts that unfinished runs need, without those of run `but`. Imports are runs without a record,
    and count too. Raise UserError if a record or notes are damaged or missing."""
    notes = {path.stem: path for path in files_in(root / "runs", ".jsonl")}
    for path in record_paths(root):
        try:
            run = read_record(path)
        except UserError as error:
            raise UserError(
                f"{error}. It is unknown which artifacts this run needs, so nothing is deleted; repair or remove it"
            ) from None
        if run.state == "finished" or run.id == but:
            notes.pop(run.id, None)
        elif run.id not in notes:
            raise UserError(
                f"run {run.id} is {run.current_state}; an earlier version of Varband did not record which artifacts it"
                f" needs, so nothing is deleted. `varband resume {run.id}{root_option(root)}` records them. If you do"
                f" not want to resume the run, remove {path}"
            )
    return {ref for path in notes.values() for ref in noted(path)}


def _seal(run: str, lines: Iterable[str]) -> Ref:
    return Ref(SEAL, hashlib.sha256("\n".join((run, *lines)).encode()).hexdigest()[:16])


def _damaged(path: Path) -> UserError:
    run, root = path.stem, path.parent.parent
    return UserError(
        f"{path}: the list of artifacts that run {run} needs is missing or incomplete;"
        f" `varband resume {run}{root_option(root)}` writes it again"
    )

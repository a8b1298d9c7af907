"""Grading at training speed: exact answers in this process, symbolic ones in processes that can be killed.

Importing this module imports no algebra; workers start when the first item needs one. They are programs of
their own (never forks of the caller, whatever it has loaded), so it makes no difference whether the caller
is a script, a thread, an event loop or a Prefect task.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from storage.errors import UserError
from tasks.domain.arms import ARMS
from tasks.domain.grading.grading import GRADER_VERSION, Overrides, Verdict, grade_region, region_of
from tasks.domain.grading.kinds import RAISED, is_brought, kind_of
from tasks.domain.grading.terms import NeedsSymbolic, exact_same
from tasks.domain.scaffolds import SCAFFOLDS, Scaffold
from tasks.engines.grading.grader_worker import STARVED
from tasks.engines.problems.json_lines import json_lines

ITEM_SECONDS = 1.9
ITEM_BYTES = 900 << 20
START_SECONDS = 60.0
#: A verdict must not depend on how busy the machine is: what starved is tried once more with this much longer to wait.
PATIENCE = 5
#: Reading an answer is linear in its length and harmless for a short one; a longer one is read under the limits too.
IN_PROCESS_CHARS = 4_000
_ROOT = Path(__file__).resolve().parents[3]
#: A grader of another package that raised on each of so many answers, all but right ones, is broken and not unlucky.
ENOUGH_RAISED = 8
#: Region, gold, answer form, finish, answer kind.
Key = tuple[str | None, str, str, str, str]


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One rollout to judge. scaffold: by content, or the name of one that the project has. finish: `stop`, `length`."""

    scaffold: Scaffold | str
    completion: str
    gold: str
    finish: str = "stop"


class Graders:
    """A pool of grading processes. Use as a context manager; safe to share between threads.

    workers: processes to start when needed; the cores of this machine unless told otherwise.
    overrides: verdicts by people; they stand above the grader's own and show in `version`.
    """

    def __init__(
        self, workers: int | None = None, item_seconds: float = ITEM_SECONDS, overrides: Overrides | None = None
    ) -> None:
        self._overrides = overrides or Overrides()
        self._count = workers or len(os.sched_getaffinity(0))
        self._seconds = item_seconds
        self._workers: list[_Worker] = []
        self._seen: dict[Key, Verdict] = {}
        self._raised: dict[str, Counter[bool]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Graders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for worker in self._workers:
                worker.close()
            self._workers.clear()

    def grade(self, items: Sequence[GradeItem]) -> list[Verdict]:
        """Verdicts in the order of the items. Equal (region, gold) pairs are judged once, across calls too."""
        keys = [_key(item) for item in items]
        for kind in {key[4] for key in keys if is_brought(key[4])}:
            kind_of(kind)  # a sentence here, rather than a process that dies
        with self._lock:
            slow: list[Key] = []
            for key in dict.fromkeys(keys):
                if key not in self._seen:
                    if len(key[0] or "") > IN_PROCESS_CHARS or is_brought(key[4]):
                        slow.append(key)
                        continue
                    try:
                        self._seen[key] = grade_region(*key, same=exact_same)  # type: ignore[arg-type]
                    except NeedsSymbolic:
                        slow.append(key)
            if slow:
                self._grade_slow(slow)
            return [self._overrides.apply(self._seen[key], key[1]) for key in keys]

    def refuse_broken(self, kind: str) -> None:
        """For who has made durable what was judged. Errors: UserError for a grader of another package that raised on
        every answer so far that is not the gold: where it raises now and then, that answer is `ungradable`."""
        told = self._raised.get(kind, Counter())
        if told[True] >= ENOUGH_RAISED and not told[False]:
            why = next(v.reason for key, v in self._seen.items() if key[4] == kind and v.reason.startswith(RAISED))
            raise UserError(
                f"{why}, as on all of {told[True]} different answers: mend it and run again; nothing sampled is lost"
            )

    @property
    def version(self) -> str:
        """What goes into the column `grader_version`."""
        return self._overrides.version(GRADER_VERSION)

    def _grade_slow(self, keys: list[Key]) -> None:
        wanted = min(self._count, len(keys))
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._seconds))
        waiting = list(reversed(keys))
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                if waiting:
                    worker.ask(waiting.pop())
            while any(worker.key for worker in self._workers):
                ready = {id(entry.data) for entry, _ in selector.select(timeout=0.25)}
                for worker in self._workers:
                    if worker.key is None or not (id(worker) in ready or worker.overdue):
                        continue
                    key = worker.key
                    stdout = worker.stdout
                    verdict = worker.answer() if id(worker) in ready else worker.give_up()
                    if worker.stdout is not stdout:
                        selector.unregister(stdout)
                        selector.register(worker.stdout, selectors.EVENT_READ, worker)
                    if verdict is None:
                        continue
                    self._seen[key] = verdict
                    if is_brought(key[4]) and verdict.verdict in ("wrong", "ambiguous", "ungradable"):
                        self._raised.setdefault(key[4], Counter())[verdict.reason.startswith(RAISED)] += 1
                    if waiting:
                        worker.ask(waiting.pop())


def _key(item: GradeItem) -> Key:
    scaffold = SCAFFOLDS[item.scaffold] if isinstance(item.scaffold, str) else item.scaffold
    region = region_of(scaffold, item.completion, item.finish)
    return region, item.gold, scaffold.answer_form, item.finish, scaffold.answer_kind


@functools.cache
def _shared() -> Graders:
    graders = Graders(workers=1)
    atexit.register(graders.close)
    return graders


def grade(answer: str, gold: str) -> Verdict:
    r"""Verdict on the text of one answer: what stands in a box or in an answer tag, or a sentence with the answer.

    Exact answers are judged here, symbolic ones in one process that is started on first use and has time and memory
    limits. To grade many at once, use `Graders`.

    >>> grade("The answer is $0.5$.", r"\frac{1}{2}").correct, grade(r"8 \text{ or larger}", "8").correct
    (True, False)
    """
    return _shared().grade([GradeItem("no_panel", SCAFFOLDS["no_panel"].answer_in_form(answer), gold)])[0]


class _Worker:
    """One keeper process (see `grader_worker`) and the item that it works on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.key: Key | None = None
        self._patience = 1
        self._start()

    def _start(self) -> None:
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.engines.grading.grader_worker", str(self._seconds), str(ITEM_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "SYMPY_GROUND_TYPES": "python"},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.stdout = self._process.stdout
        self._deadline = time.monotonic() + START_SECONDS
        self._ready = False
        self._buffer = b""

    def ask(self, key: Key, patience: int = 1) -> None:
        """patience: by how much the limit on the clock, not that on processor time, is stretched."""
        self.key, self._patience = key, patience
        if self._ready:
            self._send()

    def _send(self) -> None:
        assert self._process.stdin is not None
        assert self.key is not None
        body = json.dumps([*self.key, self._patience]).encode()
        try:
            self._process.stdin.write(b"%d\n%s" % (len(body), body))
        except BrokenPipeError:
            self._deadline = 0.0
            return
        self._deadline = time.monotonic() + self._patience * self._seconds + 5.0

    @property
    def overdue(self) -> bool:
        return time.monotonic() > self._deadline

    def answer(self) -> Verdict | None:
        """The verdict that arrived, or null if it was only the greeting. A worker that ended is replaced."""
        chunk = os.read(self.stdout.fileno(), 1 << 16)
        if not chunk:
            return self.give_up()
        self._buffer += chunk
        if not self._buffer.endswith(b"\n"):
            return None
        message = json.loads(self._buffer)
        self._buffer = b""
        if isinstance(message, dict):
            self._ready = True
            self._send()
            return None
        if message[0] == STARVED and self._patience == 1:
            self.ask(self.key, PATIENCE)  # type: ignore[arg-type]
            return None
        self.key = None
        return Verdict("timeout" if message[0] == STARVED else message[0], *message[1:])

    def give_up(self) -> Verdict:
        """Kill what does not answer and start again."""
        started = self._ready
        self.close()
        self.key = None
        if not started:
            raise RuntimeError(
                "the grading process does not start; try: python -m tasks.engines.grading.grader_worker 2 1e9"
            )
        self._start()
        return Verdict("timeout", "the grading process stopped answering", None, None)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


#: Scaffolds of the arms that the project has.
EVERYBODYS = {name: arm.scaffold for name, arm in ARMS.items()}


def read_grade_items(source: Path | bytes, scaffolds: Mapping[str, Scaffold] = EVERYBODYS) -> list[GradeItem]:
    """Items of a file (or of bytes read from standard input), all of them checked before any is graded.

    scaffolds: by arm; each row is read, and judged as the kind of answer that is asked for, by its own.
    Errors: UserError naming file, line and field.
    """
    name = "standard input" if isinstance(source, bytes) else str(source)
    try:
        raw = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from None
    lines = json_lines(raw, name, "arm, completion and gold")
    return [_item(row, f"{name}, {place}", scaffolds) for place, row in lines]


def _item(row: dict[str, Any], where: str, scaffolds: Mapping[str, Scaffold]) -> GradeItem:
    for field in ("arm", "completion", "gold"):
        if field not in row:
            raise UserError(f"{where}: no field '{field}' (found: {', '.join(row) or 'nothing'})")
    gold = row["gold"]
    if isinstance(gold, int | float) and not isinstance(gold, bool) and math.isfinite(gold):
        gold = str(gold)
    if not isinstance(gold, str) or not gold.strip():
        raise UserError(f"{where}: field 'gold' must be text and not empty, found {gold!r:.60}")
    if not isinstance(row["completion"], str):
        raise UserError(f"{where}: field 'completion' must be text, found {row['completion']!r:.60}")
    if not isinstance(row["arm"], str) or row["arm"] not in scaffolds:
        raise UserError(f"{where}: field 'arm' is {row['arm']!r:.60} (known: {', '.join(scaffolds)})")
    finish = row.get("finish") or "stop"
    if finish not in ("stop", "length"):
        raise UserError(f"{where}: field 'finish' is {finish!r:.60} (known: stop, length)")
    return GradeItem(scaffolds[row["arm"]], row["completion"], gold, finish)


BATCH = 512
NOBODY = Overrides()


def with_verdicts(
    rows: pa.Table,
    golds: Sequence[str],
    graders: Graders,
    overrides: Overrides = NOBODY,
    scaffold: Scaffold | None = None,
) -> pa.Table:
    """Rows (of ROLLOUTS or LEDGER) with verdict columns made anew; every other column as it was.

    scaffold: reads every row; null: each row's arm as it is today.
    """
    verdicts: list[Verdict] = []
    for start in range(0, rows.num_rows, BATCH):
        part = rows.slice(start, BATCH).select(["arm", "completion", "finish"]).to_pylist()
        some = golds[start : start + BATCH]
        items = [
            GradeItem(scaffold or ARMS[row["arm"]].scaffold, row["completion"], gold, row["finish"])
            for row, gold in zip(part, some, strict=True)
        ]
        found = graders.grade(items)
        verdicts += [overrides.apply(verdict, gold) for verdict, gold in zip(found, some, strict=True)]
    version = overrides.version(graders.version)
    columns = {
        "answer": pa.array([v.answer for v in verdicts], pa.string()),
        "canonical": pa.array([v.canonical for v in verdicts], pa.string()),
        "verdict": pa.array([v.verdict for v in verdicts], pa.string()),
        "reason": pa.array([v.reason for v in verdicts], pa.string()),
        "correct": pa.array([v.correct for v in verdicts], pa.bool_()),
        "grader_version": pa.array([version] * rows.num_rows, pa.string()),
    }
    for name, column in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), column)
    return rows

"""Graders with a cache per process: each pair of answer text and gold is graded once.

Grader plug-ins run in a separate process, which is killed if it hangs.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import TimeoutError, get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from storage.errors import UserError
from tasks.domain.grading.grading import GRADER_VERSION, Overrides, Verdict, grade_region, region_of
from tasks.domain.grading.kinds import OWN, RAISED, check
from tasks.domain.ranges import sentences
from tasks.domain.scaffolds import ARMS, MATH, SCAFFOLDS, AnswerForm, Scaffold
from tasks.engines.problem_files import json_lines

#: A plug-in counts as broken if it raised on all answers except golds, and on at least this many different answers.
ENOUGH_RAISED = 8
#: Time limits of a grader plug-in, in seconds: for one answer, and for the start of its process.
PLUGIN_SECONDS, START_SECONDS = 10.0, 60.0
#: Verdicts for which a grader plug-in is called. `correct` is missing, because golds have it too.
_READ = ("wrong", "ambiguous", "ungradable")
#: (region, gold, answer form, finish, answer kind).
Key = tuple[str | None, str, AnswerForm, str, str]


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One rollout to grade. scaffold: a scaffold, or the name of a built-in one. finish: `stop` or `length`."""

    scaffold: Scaffold | str
    completion: str
    gold: str
    finish: str = "stop"

    def key(self) -> Key:
        scaffold = SCAFFOLDS[self.scaffold] if isinstance(self.scaffold, str) else self.scaffold
        region = region_of(scaffold, self.completion, self.finish)
        return region, self.gold, scaffold.region_form, self.finish, scaffold.answer_kind


class _Plugins:
    """A process that runs grader plug-ins. A process that hangs is killed."""

    _pool: Pool | None = None

    def grade(self, key: Key) -> Verdict:
        seconds = PLUGIN_SECONDS
        if self._pool is None:
            self._pool = get_context("spawn").Pool(1, _without_output)
            seconds += START_SECONDS
        try:
            return self._pool.apply_async(grade_region, key).get(seconds)
        except TimeoutError:
            self.close()
            return Verdict("timeout", f"took longer than {PLUGIN_SECONDS:.0f} s", None, None)
        except (MemoryError, RecursionError) as error:
            return Verdict("ungradable", f"the grader failed: {error!r:.100}", None, None)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


def _without_output() -> None:
    """Drop everything that the plug-ins print in this process."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


class Graders:
    """Cached verdicts of the installed grader, without overrides. Thread-safe. version: for column `grader_version`."""

    version = GRADER_VERSION

    def __init__(self) -> None:
        self._seen: dict[Key, Verdict] = {}
        self._plugins = _Plugins()
        self._lock = threading.Lock()

    def __enter__(self) -> Graders:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._plugins.close()

    def grade(self, items: Sequence[GradeItem]) -> list[Verdict]:
        """Return verdicts in the order of the items. Equal (region, gold) pairs are graded only once per process."""
        keys = [item.key() for item in items]
        for kind in {key[4] for key in keys}:
            check(kind)
        with self._lock:
            for key in dict.fromkeys(keys):
                if key not in self._seen:
                    self._seen[key] = grade_region(*key) if key[4] in (MATH, *OWN) else self._plugins.grade(key)
            return [self._seen[key] for key in keys]

    def refuse_broken(self, kind: str) -> None:
        """Raise UserError for a grader plug-in that raised on every answer except golds. Call this after the graded
        rollouts are on disk. If a plug-in raises on some answers only, their verdict is `ungradable`."""
        judged = [v for key, v in self._seen.items() if key[4] == kind and v.verdict in _READ]
        raised = [v.reason for v in judged if v.reason.startswith(RAISED)]
        if len(raised) == len(judged) >= ENOUGH_RAISED:
            raise UserError(
                f"the grader failed on all {len(raised)} answers: {raised[0]}. Fix it and run again; rollouts are kept"
            )


@functools.cache
def _shared() -> Graders:
    return Graders()


def grade(answer: str, gold: str) -> Verdict:
    r"""Grade the text of one answer: the content of a box or an answer tag, or a sentence with the answer.

    >>> grade("The answer is $0.5$.", r"\frac{1}{2}").correct, grade(r"8 \text{ or larger}", "8").correct
    (True, False)
    """
    return _shared().grade([GradeItem("no_panel", SCAFFOLDS["no_panel"].answer_in_form(answer), gold)])[0]


#: Scaffolds of the built-in arms.
BUILT_IN = {name: arm.scaffold for name, arm in ARMS.items()}


class _Row(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    arm: str
    completion: str
    gold: Annotated[str, StringConstraints(pattern=r"\S")]
    finish: Literal["stop", "length"] | None = "stop"


def read_grade_items(source: Path | bytes, scaffolds: Mapping[str, Scaffold] = BUILT_IN) -> list[GradeItem]:
    """Read and check all items of a file, or of bytes from standard input. Raise UserError with file, line and field.
    scaffolds: by arm; each row is parsed and graded with that of its arm."""
    name = "standard input" if isinstance(source, bytes) else str(source)
    try:
        raw = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from None
    items = []
    for place, fields in json_lines(raw, name, "arm, completion and gold"):
        try:
            row = _Row.model_validate(fields)
        except ValidationError as error:
            raise UserError(sentences(error, f"{name}, {place}")) from None
        if row.arm not in scaffolds:
            raise UserError(f"{name}, {place}: field 'arm' is {row.arm!r:.60} (known: {', '.join(scaffolds)})")
        items.append(GradeItem(scaffolds[row.arm], row.completion, row.gold, row.finish or "stop"))
    return items


VERDICT_COLUMNS = ("answer", "canonical", "verdict", "reason", "correct")
NO_OVERRIDES = Overrides()


def with_verdicts(
    rows: pa.Table,
    golds: Sequence[str],
    graders: Graders,
    overrides: Overrides = NO_OVERRIDES,
    scaffold: Scaffold | None = None,
) -> pa.Table:
    """Return rows (of ROLLOUTS or LEDGER) with new verdicts; the other columns are unchanged.

    scaffold: parses every row; None: the scaffold of each row's arm.
    """
    verdicts: list[Verdict] = []
    for part in rows.select(["arm", "completion", "finish"]).to_batches(max_chunksize=512):
        some = golds[len(verdicts) : len(verdicts) + part.num_rows]
        items = [
            GradeItem(scaffold or ARMS[row["arm"]].scaffold, row["completion"], gold, row["finish"])
            for row, gold in zip(part.to_pylist(), some, strict=True)
        ]
        verdicts += map(overrides.apply, graders.grade(items), some)
    columns = {name: [getattr(v, name) for v in verdicts] for name in VERDICT_COLUMNS}
    columns["grader_version"] = [overrides.version(graders.version)] * rows.num_rows
    return pa.table(dict(zip(rows.column_names, rows.columns, strict=True)) | columns, schema=rows.schema)

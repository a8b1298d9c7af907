"""Rollouts that people bring: JSON lines with arm, completion, gold, finish."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.arms import ARMS
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import GradeItem
from tasks.engines.problems.json_lines import json_lines

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

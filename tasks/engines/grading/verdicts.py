"""Verdict columns made anew: rollouts that were graded before, by the grader of today."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tasks.domain.arms import ARMS
from tasks.domain.grading.grading import Verdict
from tasks.domain.grading.overrides import Overrides
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import GradeItem, Graders

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

"""Regrading: stored rollouts under another grader version or with overrides. Samples nothing, overwrites nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from storage.errors import UserError
from storage.schemas import ROLLOUTS
from storage.sql import query
from tasks.domain.arms import ARMS
from tasks.domain.grading import Verdict
from tasks.domain.overrides import Overrides
from tasks.engines.graders import GradeItem, Graders
from tasks.stage import Ref, progress, stage, store

Settled = tuple[tuple[str, str, str, str], ...]
CHANGES = pa.schema(
    [pa.field(name, pa.string(), nullable=name in ("adapter", "answer")) for name in
     ("problem_id", "arm", "adapter", "answer", "gold", "was", "now", "reason")]
    + [pa.field("step", pa.int32(), nullable=False), pa.field("rollout", pa.int32(), nullable=False)]
)  # fmt: skip
BATCH = 512


@stage("rollouts", version=1)
def regrade_rollouts(rollouts: Ref, pool: Ref, grader_version: str, settled: Settled = ()) -> pa.Table:
    """The same rollouts with this grader's verdicts. settled: (answer, gold, verdict, reason). Schema: ROLLOUTS."""
    with Graders(overrides=as_overrides(settled)) as graders:
        if graders.version != grader_version:
            raise UserError(f"grader {grader_version} is not the one installed ({graders.version})")
        rows, golds = store().read(rollouts), store().read(pool, ["problem_id", "gold"])
        return with_verdicts(rows, golds_of(rows, golds), graders, progress).select(ROLLOUTS.names).cast(ROLLOUTS)


def as_overrides(settled: Settled) -> Overrides:
    """Overrides from a recipe's plain tuples."""
    return Overrides({(answer, gold): (verdict, reason) for answer, gold, verdict, reason in settled})  # type: ignore[misc]


def golds_of(rows: pa.Table, problems: pa.Table) -> list[str]:
    """Gold of every row. Errors: UserError if a problem is not in the pool."""
    golds = dict(zip(problems["problem_id"].to_pylist(), problems["gold"].to_pylist(), strict=True))
    strange = set(rows["problem_id"].to_pylist()) - golds.keys()
    if strange:
        raise UserError(f"regrade: {len(strange)} problems of the rollouts are not in their pool, first {min(strange)}")
    return [golds[p] for p in rows["problem_id"].to_pylist()]


def with_verdicts(
    rows: pa.Table, golds: Sequence[str], graders: Graders, told: Callable[[int, int, str], None] = lambda *_: None
) -> pa.Table:
    """Rows (of ROLLOUTS or LEDGER) with verdict columns made anew; every other column as it was.

    told: hears how many rows are done, of how many.
    """
    verdicts: list[Verdict] = []
    for start in range(0, rows.num_rows, BATCH):
        part = rows.slice(start, BATCH).select(["arm", "completion", "finish"]).to_pylist()
        items = [
            GradeItem(ARMS[row["arm"]].scaffold.name, row["completion"], gold, row["finish"])
            for row, gold in zip(part, golds[start : start + BATCH], strict=True)
        ]
        verdicts += graders.grade(items)
        told(len(verdicts), rows.num_rows, "rollouts regraded")
    columns = {
        "answer": pa.array([v.answer for v in verdicts], pa.string()),
        "canonical": pa.array([v.canonical for v in verdicts], pa.string()),
        "verdict": pa.array([v.verdict for v in verdicts], pa.string()),
        "reason": pa.array([v.reason for v in verdicts], pa.string()),
        "correct": pa.array([v.correct for v in verdicts], pa.bool_()),
        "grader_version": pa.array([graders.version] * rows.num_rows, pa.string()),
    }
    for name, column in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), column)
    return rows


def changes(before: pa.Table, after: pa.Table, golds: Sequence[str]) -> pa.Table:
    """Rollouts whose verdict is another now. Both tables in one order. Schema: CHANGES."""
    numbered = before.append_column("i", pa.array(range(before.num_rows))).append_column(
        "gold", pa.array(golds, pa.string())
    )
    new = after.append_column("i", pa.array(range(after.num_rows)))
    return query(
        "select b.problem_id, b.arm, b.adapter, coalesce(a.answer, b.answer) as answer, b.gold, b.verdict as was,"
        " a.verdict as now, a.reason, b.step, b.rollout from numbered b join new a using (i)"
        " where a.verdict <> b.verdict order by i", numbered=numbered, new=new,
    ).cast(CHANGES)  # fmt: skip


def moved(before: pa.Table, after: pa.Table) -> pa.Table:
    """Figures of one set of rollouts before and after: accuracy, and problems whose band is another."""
    return query(
        """
        with groups as (
            select 'before' as phase, arm, step, problem_id, avg(correct::int) as p from before group by all
            union all select 'after', arm, step, problem_id, avg(correct::int) from after group by all),
        wide as (
            select arm, step, problem_id, max(p) filter (phase = 'before') as b, max(p) filter (phase = 'after') as a
            from groups group by all)
        select arm, step, count(*) as problems, avg(b) as accuracy_before, avg(a) as accuracy_after,
            count(*) filter ((b = 0) <> (a = 0) or (b = 1) <> (a = 1)) as bands_changed
        from wide group by all order by arm, step
        """,
        before=before, after=after,
    )  # fmt: skip

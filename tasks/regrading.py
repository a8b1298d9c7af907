"""Regrading: verdicts of stored rollouts under another grader version or with overrides. Nothing is sampled or
overwritten."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from storage.artifacts.schemas import Pool, Rollouts
from storage.errors import UserError
from storage.sql import query
from tasks.domain.grading.grading import ActiveGrader, OverrideRows, Overrides
from tasks.engines.grading.graders import with_verdicts
from tasks.evidence import scaffold_of
from tasks.grading import installed_graders
from tasks.stage import Payload, progress, stage, store

CHANGES = pa.schema(
    [
        pa.field(name, pa.string(), nullable=name in ("adapter", "answer"))
        for name in ("problem_id", "arm", "adapter", "answer", "gold", "was", "now", "reason")
    ]
    + [pa.field("step", pa.int32(), nullable=False), pa.field("rollout", pa.int32(), nullable=False)]
)


@stage(Rollouts, version=1)
def regrade_rollouts(*, rollouts: Rollouts, pool: Pool, installed: str, overrides: OverrideRows) -> Payload:
    """Return the same rollouts with verdicts of the installed grader under these overrides. Schema: Rollouts."""
    graders = installed_graders(installed)
    problems, read_by = store().read(pool, ["problem_id", "gold"]), scaffold_of(rollouts)
    total = store().manifest(rollouts).rows

    def judged() -> Iterator[pa.Table]:
        done = 0
        for rows in store().parts(rollouts):
            golds = golds_of(rows, problems)
            graded = with_verdicts(rows, golds, graders, Overrides(overrides), scaffold=read_by)
            done += rows.num_rows
            progress(done, total, "rollouts regraded")
            yield graded.select(Rollouts.schema.names).cast(Rollouts.schema)

    return Payload(judged())


def regrade(*, rollouts: Rollouts, pool: Pool, grader: ActiveGrader) -> Rollouts:
    """Return the rollouts with verdicts of the installed grader. Rollouts that another grader graded are graded again.
    Rollouts that do not exist yet will get the active grader. Adapters are not trained again after a regrading."""
    if not store().fresh(rollouts):
        return rollouts
    if set(store().read(rollouts, ["grader_version"])["grader_version"].unique().to_pylist()) <= {grader.version}:
        return rollouts
    return regrade_rollouts.titled(f"regrade {rollouts}")(
        rollouts=rollouts, pool=pool, installed=grader.installed, overrides=grader.overrides.rows
    )


def golds_of(rows: pa.Table, problems: pa.Table) -> list[str]:
    """Return the gold of each rollout's problem. Raise UserError if a problem is not in the pool."""
    golds = dict(zip(problems["problem_id"].to_pylist(), problems["gold"].to_pylist(), strict=True))
    strange = set(rows["problem_id"].to_pylist()) - golds.keys()
    if strange:
        raise UserError(f"regrade: {len(strange)} problems with rollouts are not in the pool, e.g. {min(strange)}")
    return [golds[p] for p in rows["problem_id"].to_pylist()]


def changes(before: pa.Table, after: pa.Table, golds: Sequence[str]) -> pa.Table:
    """Return rollouts whose verdict changed. Both tables have their rows in the same order. Schema: CHANGES."""
    numbered = before.append_column("i", pa.array(range(before.num_rows))).append_column(
        "gold", pa.array(golds, pa.string())
    )
    new = after.append_column("i", pa.array(range(after.num_rows)))
    return query(
        "select b.problem_id, b.arm, b.adapter, coalesce(a.answer, b.answer) as answer, b.gold, b.verdict as was,"
        " a.verdict as now, a.reason, b.step, b.rollout from numbered b join new a using (i)"
        " where a.verdict <> b.verdict order by i",
        numbered=numbered,
        new=new,
    ).cast(CHANGES)


def moved(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return accuracy before and after a regrading, and how many bands changed, by arm and step."""
    return query(
        """
        with groups as (
            select phase, arm, step, problem_id, avg(correct::int) as p,
                   band(count(*) filter (correct), count(*)) as band
            from (select 'before' as phase, arm, step, problem_id, correct from before
                  union all select 'after', arm, step, problem_id, correct from after) group by all)
        select arm, step, count(*) as problems, avg(b.p) as accuracy_before, avg(a.p) as accuracy_after,
            count(*) filter (b.band <> a.band) as bands_changed
        from (from groups where phase = 'before') b full join (from groups where phase = 'after') a
            using (arm, step, problem_id) group by all order by arm, step
        """,
        before=before,
        after=after,
    )


def outside(ledger_rows: pa.Table, artifacts: Sequence[pa.Table]) -> pa.Table:
    """Return ledger rows that no rollouts artifact has, such as the rollouts of trainings."""
    if not artifacts:
        return ledger_rows
    columns = ["arm", "adapter", "step", "seed", "problem_id", "rollout"]
    known = pa.concat_tables([table.select([*columns, "completion"]) for table in artifacts])
    return query(
        "select l.* from l anti join known k on l.arm = k.arm and l.adapter is not distinct from k.adapter"
        " and l.step = k.step and l.seed = k.seed and l.problem_id = k.problem_id and l.rollout = k.rollout"
        " and l.completion = k.completion",
        l=ledger_rows,
        known=known,
    ).cast(ledger_rows.schema)

"""Disputes: answers on which the grader and the cross check disagree, for a person to decide."""

from __future__ import annotations

import pyarrow as pa

from storage.artifacts.kinds import Disputes, Pool, Rollouts
from storage.artifacts.kinds.experiment import VERDICT
from storage.sql import query
from tasks.domain.grading.cross_check import cross_check
from tasks.domain.scaffolds import MATH
from tasks.origins import answer_kind_of
from tasks.stage import stage, store

EMPTY = Rollouts.schema.empty_table().select(["problem_id", "source", *VERDICT.names])


@stage(Disputes, version=2)
def find_disputes(*, rollouts: tuple[Rollouts, ...], pool: Pool) -> pa.Table:
    """Every distinct (answer, gold) of the rollouts on which the two differ. Schema: Disputes. Answers that are not
    mathematics have no cross check."""
    columns = EMPTY.column_names
    rows = pa.concat_tables([store().read(ref, columns) for ref in rollouts if answer_kind_of(ref) == MATH] or [EMPTY])
    problems = store().read(pool, ["problem_id", "gold"])
    return disputes(
        query("select rows.*, gold from rows join problems using (problem_id)", rows=rows, problems=problems)
    )


def disputes(rows: pa.Table) -> pa.Table:
    """Disputed answers among rows with problem_id, source, gold, answer, verdict, reason, grader_version.

    Only `correct` and `wrong` can be disputed: a cross check of what is no answer at all means nothing.

    >>> row = {"problem_id": "p", "source": "s", "gold": "7", "verdict": "wrong", "reason": "", "grader_version": "1"}
    >>> disputes(pa.Table.from_pylist([row | {"answer": "7.0"}, row | {"answer": "8"}]))["answer"].to_pylist()
    ['7.0']
    """
    distinct = query(
        "select min(problem_id) as problem_id, min(source) as source, gold, answer, verdict, min(reason) as reason,"
        " min(grader_version) as grader_version, count(*) as rollouts from rows"
        " where answer is not null and verdict in ('correct', 'wrong')"
        " group by gold, answer, verdict order by gold, answer",
        rows=rows,
    )
    found = []
    for row in distinct.to_pylist():
        second = cross_check(row["answer"], row["gold"])
        if second != "unknown" and (second == "same") != (row["verdict"] == "correct"):
            found.append(row | {"cross_check": second})
    return pa.Table.from_pylist(
        [{name: row[name] for name in Disputes.schema.names} for row in found], schema=Disputes.schema
    )

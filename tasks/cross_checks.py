"""Disputes: answers on which the grader and the cross check disagree, for a person to decide."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from storage.artifacts.kinds import Disputes, Pool, Rollouts
from storage.artifacts.kinds.experiment import VERDICT
from storage.sql import query
from tasks.domain.grading.cross_check import cross_check
from tasks.domain.scaffolds import MATH
from tasks.origins import answer_kind_of
from tasks.stage import stage, store

COLUMNS = ["problem_id", "source", *VERDICT.names]
#: Pairs of an answer and a gold whose second reading is remembered.
PAIRS_KNOWN = 20_000


@stage(Disputes, version=2)
def find_disputes(*, rollouts: tuple[Rollouts, ...], pool: Pool) -> pa.Table:
    """Every distinct (answer, gold) of the rollouts on which the two differ. Schema: Disputes. Answers that are not
    mathematics have no cross check."""
    problems = store().read(pool, ["problem_id", "gold"])
    mathematical = (ref for ref in rollouts if answer_kind_of(ref) == MATH)
    parts = (part for ref in mathematical for part in store().parts(ref, COLUMNS))
    return disputes(part.join(problems, "problem_id", join_type="inner") for part in parts)


def disputes(parts: Iterable[pa.Table]) -> pa.Table:
    """Disputed answers among rows with problem_id, source, gold, answer, verdict, reason, grader_version.

    Only `correct` and `wrong` can be disputed: a cross check of what is no answer at all means nothing.

    >>> row = {"problem_id": "p", "source": "s", "gold": "7", "verdict": "wrong", "reason": "", "grader_version": "1"}
    >>> disputes([pa.Table.from_pylist([row | {"answer": "7.0"}, row | {"answer": "8"}])])["answer"].to_pylist()
    ['7.0']
    """
    second, found = lru_cache(PAIRS_KNOWN)(cross_check), [Disputes.schema.empty_table()]
    for part in parts:
        answered = query(
            "select *, '' as cross_check, 1 as rollouts from rows"
            " where answer is not null and verdict in ('correct', 'wrong')",
            rows=part,
        )
        rows = []
        for row in _distinct(answered).to_pylist():
            said = second(row["answer"], row["gold"])
            if said != "unknown" and (said == "same") != (row["verdict"] == "correct"):
                rows.append(row | {"cross_check": said})
        found.append(pa.Table.from_pylist(rows, schema=Disputes.schema))
    return _distinct(pa.concat_tables(found))


def _distinct(rows: pa.Table) -> pa.Table:
    """Schema: Disputes."""
    told = query(
        "select min(problem_id) as problem_id, min(source) as source, gold, answer, verdict, min(reason) as reason,"
        " cross_check, min(grader_version) as grader_version, sum(rollouts)::bigint as rollouts from rows"
        " group by gold, answer, verdict, cross_check order by gold, answer, verdict",
        rows=rows,
    )
    return told.select(Disputes.schema.names).cast(Disputes.schema)

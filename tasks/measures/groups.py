"""Groups: the rollouts of one problem under one policy, reduced to counts. Where rows become numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from storage.errors import UserError
from storage.sql import query

#: What a group needs of its rollouts; completions stay on disk.
COLUMNS = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct", "finish", "num_tokens"]


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of several artifacts' rollouts. Errors: UserError if one rollout occurs twice."""
    joined = pa.concat_tables(tables) if tables else pa.table({})
    if joined.num_rows == 0:
        raise UserError("no rollouts to analyse: every artifact given is empty")
    return joined


def classed(rollouts: pa.Table, partitions: Sequence[pa.Table]) -> pa.Table:
    """Rollouts with their classes: the column `answer_class`, and what else the partitions have. Errors: UserError if
    one has no row there."""
    columns = ["problem_id", "arm", "adapter", "step", "seed", "rollout"]
    on = " and ".join(f"r.{name} is not distinct from p.{name}" for name in columns)
    # keys alone are joined: of a million traces a database would copy each
    found = query(
        f"select p.* exclude ({', '.join(columns)}), p.rollout is null as missing"
        f" from rollouts r left join partitions p on {on} order by r.place",
        rollouts=rollouts.select(columns).append_column("place", pa.array(range(rollouts.num_rows))),
        partitions=pa.concat_tables(partitions),
    )
    if any(found["missing"].to_pylist()):
        raise UserError("some rollouts have no answer class: give the partitions of the same rollouts")
    for name in found.drop(["missing"]).column_names:
        rollouts = rollouts.append_column(name, found[name])
    return rollouts


def count_groups(rollouts: pa.Table) -> pa.Table:
    """One row per (policy, problem), sorted: group_size, num_correct, num_tokens, truncated.

    Errors: UserError if the same rollout of a problem occurs twice under one policy.
    """
    groups = query(
        """
        select arm, step, coalesce(adapter, '') as adapter, seed, problem_id, any_value(source) as source,
               count(*)::integer as group_size, count(*) filter (where correct)::integer as num_correct,
               sum(num_tokens)::bigint as num_tokens,
               count(*) filter (where finish = 'length')::integer as truncated,
               count(*)::integer - count(distinct rollout)::integer as repeated
        from rollouts group by arm, step, coalesce(adapter, ''), seed, problem_id
        order by arm, step, adapter, seed, problem_id
        """,
        rollouts=rollouts,
    )
    repeated = query("select problem_id, arm, repeated from groups where repeated > 0 limit 1", groups=groups)
    if repeated.num_rows:
        row = repeated.to_pylist()[0]
        raise UserError(
            f"problem {row['problem_id']} has {row['repeated']} rollouts of arm {row['arm']} twice: the same artifact"
            " was given more than once"
        )
    return groups.drop(["repeated"])

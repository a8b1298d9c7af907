"""Groups as arrays of numbers, and the curve of every slice of them: one query, whatever the number of slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.domain.statistics.curves_of_k import KCurve, k_curve

Slice = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Counts:
    """Columns of groups, sorted, and where each (arm, step, source) lies; source `all` is every row of (arm, step)."""

    columns: dict[str, np.ndarray]
    places: dict[Slice, slice]

    def curve(self, arm: str, step: int, source: str, ks: Sequence[int]) -> KCurve:
        """Empty where there is no such slice."""
        mine = self.places.get((arm, step, source), slice(0, 0))
        names = ("problem", "cluster", "adapter", "policy", "group_size", "num_correct", "num_tokens")
        problem, cluster, adapter, policy, size, correct, tokens = (self.columns[name][mine] for name in names)
        return k_curve(problem, cluster, adapter, policy, size, correct, tokens, ks)


def counts_of(groups: pa.Table) -> Counts:
    """problem, cluster, adapter and policy are numbers that mean the same in every slice; adapter 0 is none. Groups
    without a column `cluster` have a cluster a problem."""
    cluster = "coalesce(cluster, problem_id)" if "cluster" in groups.column_names else "problem_id"
    ordered = query(
        f"""
        select arm, step, source, dense_rank() over (order by problem_id) as problem,
               dense_rank() over (order by {cluster}) as cluster, group_size, num_correct,
               num_tokens, case when adapter = '' then 0 else dense_rank() over (order by adapter) end as adapter,
               dense_rank() over (order by adapter, seed) as policy
        from groups order by arm, step, source
        """,
        groups=groups,
    )
    columns = {name: ordered[name].to_numpy() for name in ordered.column_names[3:]}
    slices = query(
        "select arm, step, source, count(*) as n from groups group by all order by arm, step, source", groups=groups
    ).to_pylist()
    places: dict[Slice, slice] = {}
    start = 0
    for row in slices:
        policy, stop = (row["arm"], row["step"]), start + row["n"]
        whole = places.get((*policy, "all"), slice(start, stop))
        places[(*policy, "all")] = slice(whole.start, stop)
        places[(*policy, row["source"])] = slice(start, stop)
        start = stop
    return Counts(columns, places)

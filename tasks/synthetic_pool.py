"""The demo's pool: synthetic arithmetic problems that the project makes itself."""

from __future__ import annotations

import pyarrow as pa

from storage.artifacts.kinds import Pool
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import pool_rows
from tasks.stage import stage


@stage(Pool, version=1)
def make_synthetic_pool(*, per_source: int, seed: int, levels: tuple[int, ...] = ()) -> pa.Table:
    """`per_source` problems of each synthetic source, of these levels by turns; of all without any. Schema: Pool."""
    return pa.Table.from_pylist(pool_rows(demo_problems(per_source, seed, levels))[0], schema=Pool.schema)

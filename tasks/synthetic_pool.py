"""The demo's pool: synthetic arithmetic problems that the project makes itself."""

from __future__ import annotations

import pyarrow as pa

from storage.artifacts.kinds import Pool
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import pool_rows
from tasks.stage import stage


@stage(Pool, version=1)
def make_synthetic_pool(*, per_source: int, seed: int) -> pa.Table:
    """`per_source` problems of each synthetic source. Schema: Pool."""
    return pa.Table.from_pylist(pool_rows(demo_problems(per_source, seed))[0], schema=Pool.schema)

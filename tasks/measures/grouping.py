"""Groups from what stages are given: rollouts are counted, imported counts are taken as they are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tasks.measures.groups import COLUMNS, count_groups, together
from tasks.stage import Ref, store


def read_groups(refs: Sequence[Ref]) -> pa.Table:
    """One row per (policy, problem). `groups` artifacts hold counts whose rollouts were never published."""
    counted = [store().read(ref) for ref in refs if ref.kind == "groups"]
    sampled = [store().read(ref, COLUMNS) for ref in refs if ref.kind != "groups"]
    if sampled:
        counted.append(count_groups(together(sampled)))
    return pa.concat_tables(counted, promote_options="permissive")

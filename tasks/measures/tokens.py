"""Token efficiency: what a correct answer costs, and how lengths compare pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pyarrow as pa

from storage.artifacts.kinds import Rollouts, Tokens
from storage.sql import query
from tasks.domain.statistics.families import in_families
from tasks.measures.grouping import with_clusters
from tasks.measures.groups import COLUMNS, count_groups, together
from tasks.measures.standard import standard_measure
from tasks.measures.token_costs import bucket_rows, cost_rows
from tasks.stage import stage, store


def tokens_of(rollouts: pa.Table, clusters: Callable[[pa.Table], pa.Table] = lambda groups: groups) -> pa.Table:
    """Columns of Tokens.schema. metric: `tokens_per_correct` (one (arm, step) and source) or `bucket` (two of them).
    clusters: adds to groups which problems are near-duplicates."""
    groups = clusters(count_groups(rollouts))
    rows = cost_rows(groups)
    policies = query("select distinct arm, step from groups order by arm, step", groups=groups).to_pylist()
    cluster_of = {}
    if "cluster" in groups.column_names:
        cluster_of = dict(zip(groups["problem_id"].to_pylist(), groups["cluster"].to_pylist(), strict=True))
    for first, second in combinations([(p["arm"], p["step"]) for p in policies], 2):
        rows += bucket_rows(rollouts, first, second, cluster_of)
    return pa.Table.from_pylist(
        in_families(rows, lambda row: ("token lengths", "bh"), "p_wilcoxon"), schema=Tokens.schema
    )


@standard_measure("tokens", rollouts="final")
@stage(Tokens, version=11)
def measure_tokens(*, rollouts: tuple[Rollouts, ...]) -> pa.Table:
    """Tokens per correct answer with truncation beside it, and paired lengths by who was correct."""
    read = together([store().read(ref, COLUMNS) for ref in rollouts])
    return tokens_of(read, lambda groups: with_clusters(groups, rollouts))

"""Groups from what stages are given: rollouts are counted, imported counts are taken as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from storage.artifacts.kinds import Partitions, Rollouts
from storage.sql import query
from tasks.measures.groups import COLUMNS, classed, count_groups, together
from tasks.stage import Ref, beside, store


def read_groups(refs: Sequence[Ref]) -> pa.Table:
    """One row per (policy, problem), with its cluster of near-duplicates. `groups` artifacts hold counts whose rollouts
    were never published."""
    counted = [store().read(ref) for ref in refs if ref.kind == "groups"]
    sampled = [ref for ref in refs if ref.kind != "groups"]
    if sampled:
        groups = count_groups(together([store().read(ref, COLUMNS) for ref in sampled]))
        counted.append(with_clusters(groups, sampled))
    return pa.concat_tables(counted, promote_options="permissive")


def with_clusters(rows: pa.Table, refs: Sequence[Ref]) -> pa.Table:
    """rows by problem_id with their cluster, as the pools know it from which these artifacts were sampled; a problem
    that no pool knows is its own."""
    pools = [store().read(pool, ["problem_id", "cluster"]) for pool in dict.fromkeys(map(pool_of, refs)) if pool]
    if not pools:
        return rows.append_column("cluster", rows["problem_id"])
    return query(
        """
        select r.*, coalesce(c.cluster, r.problem_id) as cluster
        from rows r left join (select problem_id, min(cluster) as cluster from pools group by problem_id) c
        using (problem_id)
        """,
        rows=rows,
        pools=pa.concat_tables(pools),
    )


def clusters_of(refs: Sequence[Ref]) -> pa.Table:
    """problem_id and cluster of every problem of these."""
    of_each = [store().keys(ref, ["problem_id"])["problem_id"].unique().cast(pa.string()) for ref in refs]
    asked = together([pa.table({"problem_id": ids}) for ids in of_each])
    return with_clusters(asked.group_by("problem_id").aggregate([]), refs)


def in_classes(rollouts: Rollouts, partitions: Partitions, columns: list[str]) -> Iterator[pa.Table]:
    """Rollouts of whole problems, part after part, with their classes. Errors: UserError if one has no row there."""
    at = ["problem_id"]
    known = set(store().keys(partitions, at)["problem_id"].unique().to_pylist())
    pairs = beside(store().groups(rollouts, at, columns), store().groups(partitions, at), known, Partitions.schema)
    yield from (classed(rows, [classes]) for rows, classes in pairs)


def pool_of(ref: Ref) -> Ref | None:
    """The pool that rollouts, or what was made of rollouts, were sampled from; null for what was imported."""
    recipe = store().manifest(ref).recipe
    while "pool" not in recipe.inputs:
        onward = recipe.inputs.get("rollouts") or recipe.inputs.get("embeddings")
        if not onward:
            return None
        recipe = store().manifest(Ref.parse(onward[0])).recipe
    return Ref.parse(recipe.inputs["pool"][0])

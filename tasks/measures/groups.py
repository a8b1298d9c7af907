"""Groups: the rollouts of one problem under one policy, reduced to counts. Where rows become numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Partitions, Rollouts
from storage.errors import UserError
from storage.sql import query
from tasks.domain.statistics.curves_of_k import KCurve, k_curve
from tasks.stage import Ref, beside, store

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


# Groups from what stages are given: rollouts are counted, imported counts are taken as they are.


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


# Groups as arrays of numbers, and the curve of every slice of them: one query, whatever the number of slices.

Slice = tuple[str, int, str]


def stretches(rows: pa.Table, keys: Sequence[str]) -> list[tuple[dict[str, Any], slice]]:
    """(key, place) of every stretch of rows with equal keys, in a sorted table.

    >>> stretches(pa.table({"arm": ["a", "a", "b"]}), ["arm"])
    [({'arm': 'a'}, slice(0, 2, None)), ({'arm': 'b'}, slice(2, 3, None))]
    """
    new_N = np.zeros(len(rows), bool)
    new_N[:1] = True
    for key in keys:
        codes_N = rows[key].combine_chunks().dictionary_encode("encode").indices.to_numpy()
        new_N[1:] |= codes_N[1:] != codes_N[:-1]
    starts = np.flatnonzero(new_N).tolist()
    found = rows.select(list(keys)).take(pa.array(starts, pa.int64())).to_pylist()
    return [(row, slice(i, j)) for row, i, j in zip(found, starts, [*starts[1:], len(rows)], strict=False)]


@dataclass(frozen=True, slots=True)
class Counts:
    """Columns of groups, sorted, and where each (arm, step, source) lies; source `all` is every row of (arm, step)."""

    columns: dict[str, np.ndarray]
    places: dict[Slice, slice]

    def at(self, place: Slice) -> dict[str, np.ndarray]:
        """Columns of one slice, empty where there is no such slice."""
        mine = self.places.get(place, slice(0, 0))
        return {name: column[mine] for name, column in self.columns.items()}

    def curve(self, arm: str, step: int, source: str, ks: Sequence[int]) -> KCurve:
        of = self.at((arm, step, source))
        counted = of["group_size"], of["num_correct"], of["num_tokens"]
        return k_curve(of["problem"], of["cluster"], of["adapter"], of["policy"], *counted, ks)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Arm → its first and its last step."""
        steps: dict[str, list[int]] = {}
        for arm, step, _ in self.places:
            steps.setdefault(arm, []).append(step)
        return {arm: (min(own), max(own)) for arm, own in steps.items()}

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for _, _, source in self.places))


def counts_of(groups: pa.Table) -> Counts:
    """problem, cluster, adapter and policy are numbers that mean the same in every slice; adapter 0 is none. Groups
    without a column `cluster` have a cluster a problem."""
    cluster = "coalesce(cluster, problem_id)" if "cluster" in groups.column_names else "problem_id"
    truncated = ", truncated" if "truncated" in groups.column_names else ""
    ordered = query(
        f"""
        select arm, step, source, dense_rank() over (order by problem_id) as problem,
               dense_rank() over (order by {cluster}) as cluster, group_size, num_correct, num_tokens{truncated},
               case when adapter = '' then 0 else dense_rank() over (order by adapter) end as adapter,
               dense_rank() over (order by adapter, seed) as policy
        from groups order by arm, step, source
        """,
        groups=groups,
    )
    places: dict[Slice, slice] = {}
    for row, mine in stretches(ordered, keys := ["arm", "step", "source"]):
        arm, step, source = (row[key] for key in keys)
        whole = places.get((arm, step, "all"), mine)
        places[arm, step, "all"] = slice(whole.start, mine.stop)
        places[arm, step, source] = mine
    return Counts({name: ordered[name].to_numpy() for name in ordered.column_names[3:]}, places)


# Form: how many rollouts gave no answer, had no valid tags, were cut off. It stands beside every accuracy.

FORM_COLUMNS = ["verdict", "tag_valid", "finish"]


def form_of(rollouts: pa.Table) -> dict[str, Any]:
    """rollouts: their number; no_answer, invalid_tags, truncated: shares of them, null for none.

    >>> form_of(pa.table({"verdict": ["no_answer", "wrong"], "tag_valid": [False, True], "finish": ["length", "stop"]}))
    {'rollouts': 2, 'no_answer': 0.5, 'invalid_tags': 0.5, 'truncated': 0.5}
    """
    return query(
        """
        select count(*) as rollouts, avg((verdict = 'no_answer')::int) as no_answer,
               avg((not tag_valid)::int) as invalid_tags, avg((finish = 'length')::int) as truncated
        from rollouts
        """,
        rollouts=rollouts,
    ).to_pylist()[0]


def delivered(rollouts: pa.Table) -> dict[str, Any]:
    """The same with the mean accuracy."""
    return form_of(rollouts) | query("select avg(correct::int) as accuracy from t", t=rollouts).to_pylist()[0]


def in_words(form: dict[str, Any]) -> str:
    """
    >>> in_words({"rollouts": 8, "no_answer": 0.25, "invalid_tags": 0.0, "truncated": 1.0})
    '8 rollouts: 25.0 % without an answer, 0.0 % without valid tags, 100.0 % cut off'
    """
    names = {"no_answer": "without an answer", "invalid_tags": "without valid tags", "truncated": "cut off"}
    shares = (f"{100 * form[name]:.1f} % {said}" for name, said in names.items() if form[name] is not None)
    return f"{form['rollouts']:,} rollouts: {', '.join(shares)}"

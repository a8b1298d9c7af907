"""Groups (all rollouts of one problem under one policy): how they are counted, and averaged over problems and seeds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.schemas import Partitions, Rollouts
from storage.errors import UserError
from storage.sql import query
from tasks.domain.statistics.curves_of_k import INCOMPLETE, levels
from tasks.domain.statistics.means import Seeded, by_seed, folded
from tasks.evidence import traced
from tasks.stage import Ref, beside, store

Row = dict[str, Any]
#: Columns that identify a rollout, and whether it is correct; completions stay on disk.
OF_ROLLOUT = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "correct"]
#: Columns that are read for counting groups.
COLUMNS = [*OF_ROLLOUT, "finish", "num_tokens", "verdict"]


def count_groups(rollouts: pa.Table) -> pa.Table:
    """Return one row per policy and problem, sorted: group_size, num_correct, num_tokens, truncated, num_answered.
    Raise UserError if a rollout of a problem occurs twice under one policy."""
    groups = query(
        """
        select arm, step, coalesce(adapter, '') as adapter, seed, problem_id, any_value(source) as source,
               count(*)::integer as group_size, count(*) filter (where correct)::integer as num_correct,
               sum(num_tokens)::bigint as num_tokens,
               count(*) filter (where finish = 'length')::integer as truncated,
               count(*) filter (where verdict <> 'no_answer')::integer as num_answered,
               count(*)::integer - count(distinct rollout)::integer as repeated
        from rollouts group by arm, step, coalesce(adapter, ''), seed, problem_id
        order by arm, step, adapter, seed, problem_id
        """,
        rollouts=rollouts,
    )
    if any(groups["repeated"].to_pylist()):
        raise UserError("a problem has the same rollout twice; give each artifact once")
    return groups.drop(["repeated"])


def read_groups(refs: Sequence[Ref]) -> pa.Table:
    """Return one row per policy and problem, with its cluster. refs: rollouts, or `groups` artifacts (published
    counts)."""
    counted = [store().read(ref) for ref in refs if ref.kind == "groups"]
    sampled = [ref for ref in refs if ref.kind != "groups"]
    if sampled:
        groups = count_groups(pa.concat_tables([store().read(ref, COLUMNS) for ref in sampled]))
        counted.append(with_clusters(groups, sampled))
    return pa.concat_tables(counted, promote_options="permissive")


def with_clusters(rows: pa.Table, refs: Sequence[Ref]) -> pa.Table:
    """Add the cluster of each problem, from the pools that these artifacts were sampled from. A problem outside these
    pools is a cluster of its own."""
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


def pool_of(ref: Ref) -> Ref | None:
    """Return the pool of rollouts, or of an artifact derived from them; None for imported ones."""
    recipe = traced(ref, lambda one: "pool" in one.inputs)
    return Ref.parse(recipe.inputs["pool"][0]) if recipe else None


def classed(rollouts: pa.Table, partitions: pa.Table) -> pa.Table:
    """Join rollouts with their classes (`answer_class` and others). Raise UserError if a rollout has no class."""
    keys = ["problem_id", "arm", "step", "seed", "rollout"]
    found = rollouts.join(partitions.drop(["adapter"]), keys, join_type="inner", use_threads=False)
    if found.num_rows < rollouts.num_rows:
        raise UserError("some rollouts have no answer class: pass the artifact of kind partitions of these rollouts")
    return found


def in_classes(rollouts: Rollouts, partitions: Partitions, columns: list[str]) -> Iterator[pa.Table]:
    """Yield rollouts of whole problems, in parts, with classes and clusters. Raise UserError as `classed` does."""
    at = ["problem_id"]
    problems = store().keys(rollouts, at)["problem_id"].unique().cast(pa.string())
    clusters = with_clusters(pa.table({"problem_id": problems}), [rollouts])
    known = set(store().keys(partitions, at)["problem_id"].unique().to_pylist())
    pairs = beside(store().groups(rollouts, at, columns), store().groups(partitions, at), known, Partitions.schema)
    for rows, classes in pairs:
        yield classed(rows, classes).join(clusters, at, use_threads=False)


# ---- slices of groups by arm, step and source: counts, curves over k, and means

Slice = tuple[str, int, str]
_KEYS = ("arm", "step", "source", "adapter", "seed", "problem_id", "cluster")


def stretches(rows: pa.Table, keys: Sequence[str]) -> list[tuple[dict[str, Any], slice]]:
    """Return (key, slice) of each run of rows with equal keys. The table is sorted.

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
    """Columns of groups, sorted, and the slice of each (arm, step, source). Source `all` has every row."""

    columns: dict[str, np.ndarray]
    places: dict[Slice, slice]

    def at(self, place: Slice) -> dict[str, np.ndarray]:
        """Return the columns of one slice; empty columns if there is no such slice."""
        mine = self.places.get(place, slice(0, 0))
        return {name: column[mine] for name, column in self.columns.items()}

    def rows(self, make: Callable[[dict[str, np.ndarray]], Iterable[Row]]) -> list[Row]:
        """Return the rows that `make` returns for each slice, with arm, step and source."""
        return [
            {"arm": arm, "step": step, "source": source} | row
            for arm, step, source in self.places
            for row in make(self.at((arm, step, source)))
        ]

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Return each arm's first and last step."""
        steps: dict[str, list[int]] = {}
        for arm, step, _ in self.places:
            steps.setdefault(arm, []).append(step)
        return {arm: (min(own), max(own)) for arm, own in steps.items()}

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for _, _, source in self.places))


def counts_of(groups: pa.Table) -> Counts:
    """Sort groups into slices. problem, cluster, adapter and policy become numbers that mean the same in all slices.
    Adapter 0 means no adapter. Without a column `cluster`, each problem is its own cluster."""
    cluster = "coalesce(cluster, problem_id)" if "cluster" in groups.column_names else "problem_id"
    kept = ", ".join(f'"{name}"' for name in groups.column_names if name not in _KEYS)
    ordered = query(
        f"""
        select arm, step, source, dense_rank() over (order by problem_id) as problem,
               dense_rank() over (order by {cluster}) as cluster,
               case when adapter = '' then 0 else dense_rank() over (order by adapter) end as adapter,
               dense_rank() over (order by adapter, seed) as policy, {kept}
        from groups order by arm, step, source, problem, policy
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


def seeded(of: Mapping[str, np.ndarray], columns: Sequence[str]) -> Seeded:
    """Return columns of one slice and the cluster, by seed and problem."""
    return by_seed(of["problem"], of["adapter"], np.column_stack([*(of[name] for name in columns), of["cluster"]]))


def accuracy(counts: Counts, place: Slice) -> Seeded:
    """Return accuracy and cluster by seed and problem."""
    of = counts.at(place)
    return seeded(of | {"accuracy": of["num_correct"] / of["group_size"]}, ["accuracy"])


def estimates(
    of: Mapping[str, np.ndarray], heads: Mapping[str, Row], *, partial: bool = False, gradual: bool = False
) -> list[Row]:
    """Return one row per column in `heads`: its mean over the problems that every adapter has, with an interval over
    problems and seeds, or the reason for none.

    of: columns of one slice, whose values are shares. heads: column → first fields of its row; `why` is the reason for
    missing values. The reason is given if any value is missing, or with `partial` only if all are. gradual: see
    `levels`.
    """
    found = seeded(of, list(heads))
    values_SPV, rows = found.values_SPV, list[Row]()
    seeds = len(found.adapter_S) if found.trained else None
    for place, (name, head) in enumerate(heads.items()):
        there_P = np.isfinite(values_SPV[:, :, place]).all(axis=0)
        missing_N = np.isnan(of[name])
        why = head.get("why") if (missing_N.all() if partial else missing_N.any()) else None
        row = {key: value for key, value in head.items() if key != "why"} | {"seeds": seeds}
        if why or not there_P.any():
            rows.append(row | {"n": 0 if partial else values_SPV.shape[1], "reason": why or INCOMPLETE})
            continue
        values_SC1 = folded(values_SPV[:, there_P, place, None], found.cluster_P[there_P])
        rows.append(row | {"n": int(there_P.sum())} | levels(values_SC1, found.trained, gradual=gradual)[0])
    return rows


# ---- form: shares of rollouts without an answer, without valid tags, or truncated; shown with every accuracy

FORM_COLUMNS = ["verdict", "tag_valid", "finish", "correct"]


def form_of(rollouts: pa.Table) -> Row:
    """Return number of rollouts, accuracy, no_answer, invalid_tags, truncated; None without rollouts.

    >>> rows = {"verdict": ["no_answer", "wrong"], "tag_valid": [False, True], "finish": ["length", "stop"]}
    >>> form_of(pa.table(rows | {"correct": [False, False]}))
    {'rollouts': 2, 'accuracy': 0.0, 'no_answer': 0.5, 'invalid_tags': 0.5, 'truncated': 0.5}
    """
    return query(
        """
        select count(*) as rollouts, avg(correct::int) as accuracy, avg((verdict = 'no_answer')::int) as no_answer,
               avg((not tag_valid)::int) as invalid_tags, avg((finish = 'length')::int) as truncated
        from rollouts
        """,
        rollouts=rollouts,
    ).to_pylist()[0]

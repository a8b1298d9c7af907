"""Splits: which problems are held out. A property of the problem, drawn before any model is seen."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import pyarrow as pa

from storage.artifacts.kinds import ArmSplits, Bands, Pool, Splits
from storage.errors import UserError
from storage.sql import query
from tasks.domain.problems.leaks import find_leaks, left_out
from tasks.domain.problems.splits import of_split, reserved_sources
from tasks.stage import Payload, stage, store

TEXT = ["problem_id", "source_id", "problem"]


@stage(Splits, version=1)
def split_pool(*, pool: Pool, heldout_per_source: int, seed: int) -> pa.Table:
    """`train` or `heldout` for every problem of the pool. Schema: Splits."""
    return draw_split(store().read(pool), heldout_per_source, seed)


@stage(Splits, version=1)
def import_split(*, pool: Pool, heldout_source_ids: tuple[str, ...]) -> pa.Table:
    """A split drawn elsewhere: the problems named by the ids that their sources publish are held out."""
    return split_by_source_id(store().read(pool), heldout_source_ids)


@stage(ArmSplits, version=1)
def split_arms(*, splits: Splits, bands: tuple[Bands, ...]) -> pa.Table:
    """What each arm trains on (its variance band minus held-out) and `joint`: what all do. Schema: ArmSplits."""
    return arm_splits(store().read(splits), pa.concat_tables([store().read(ref) for ref in bands]))


@stage(Splits, version=1)
def keep_clear(*, pool: Pool, splits: Splits, studied: Pool, heldout: Splits) -> Payload:
    """A lesson's split without the study's held-out problems and what nearly equals them, by the rule of `pool check`.
    Schema: Splits.

    studied, heldout: the study's pool and its split.
    """
    held = of_split(store().read(studied, TEXT), store().read(heldout), "heldout")
    leaks = find_leaks(held, store().read(pool, TEXT), "heldout", "lesson")
    made = left_out(store().read(splits), leaks).cast(Splits.schema)
    return Payload(made, notes={"near_heldout": str(made["split"].to_pylist().count("near_heldout"))})


def draw_split(pool: pa.Table, heldout_per_source: int, seed: int) -> pa.Table:
    """Exactly `heldout_per_source` held-out problems of every source; near-duplicates stay on one side.

    Clusters are taken in the order of a hash of (seed, cluster), so the draw is the same on every machine. A cluster
    that would overshoot its source's quota is passed over. In a pool of several sources those that are there for
    evaluation only (MATH-500) are held out whole, with what nearly equals them.

    >>> t = pa.table({"problem_id": list("abcd"), "source": ["s"] * 4, "cluster": ["a", "a", "c", "d"]})
    >>> sorted(draw_split(t, 2, 0)["split"].to_pylist())
    ['heldout', 'heldout', 'train', 'train']
    """
    rows = pool.select(["problem_id", "source", "cluster"]).to_pylist()
    sources = Counter(row["source"] for row in rows)
    reserved = reserved_sources(sources)
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        members[row["cluster"]][row["source"]] += 1
    heldout = {cluster for cluster, found in members.items() if found.keys() & reserved}
    left = Counter({s: heldout_per_source for s in sources if s not in reserved})
    ranked = sorted(members.keys() - heldout, key=lambda c: (hashlib.sha256(f"{seed}:{c}".encode()).digest(), c))
    for cluster in ranked:
        if all(left[s] >= n for s, n in members[cluster].items()):
            heldout.add(cluster)
            left.subtract(members[cluster])
    for source, missing in sorted(left.items()):
        if missing > 0:
            raise UserError(
                f"split: source {source} has {sources[source]} problems, {heldout_per_source} cannot be held out of it"
            )
        if sources[source] == heldout_per_source and heldout_per_source:
            raise UserError(
                f"split: all {sources[source]} problems of source {source} would be held out; hold out fewer"
            )
    split = ["heldout" if row["cluster"] in heldout else "train" for row in rows]
    return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": split}).cast(Splits.schema)


def split_by_source_id(pool: pa.Table, heldout: Sequence[str]) -> pa.Table:
    """Errors: UserError for an id that the pool does not hold, or holds twice."""
    ids = Counter(pool["source_id"].to_pylist())
    strange = [i for i in heldout if ids[i] != 1]
    if strange:
        raise UserError(f"split: {len(strange)} held-out ids are not in the pool exactly once, first {strange[0]!r}")
    chosen = set(heldout)
    split = ["heldout" if i in chosen else "train" for i in pool["source_id"].to_pylist()]
    return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": split}).cast(Splits.schema)


def arm_splits(splits: pa.Table, bands: pa.Table) -> pa.Table:
    """Rows of arm × problem in train or heldout, variance band only for train; the arm `joint` is the intersection."""
    return query(
        """
        with arms as (select distinct arm from bands),
        live as (
            select b.problem_id, s.source, b.arm from bands b join splits s using (problem_id)
            where is_variance(b.band) and s.split = 'train'
        ),
        joint as (
            select problem_id, source, 'joint' as arm from live
            group by all having count(distinct live.arm) = (select count(*) from arms)
        )
        select problem_id, source, arm, 'train' as split from (
            select problem_id, source, arm from live union all select problem_id, source, arm from joint)
        union all
        select problem_id, source, arm, 'heldout' from splits, (from arms union all select 'joint') a
        where split = 'heldout'
        order by arm, split, problem_id
        """,
        splits=splits,
        bands=bands,
    ).cast(ArmSplits.schema)

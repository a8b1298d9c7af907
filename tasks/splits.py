"""Splits and benchmarks: the held-out problems of a pool, and the evaluated problems of a published set."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import pyarrow as pa

from storage.artifacts.schemas import Benchmark, Pool, Splits
from storage.errors import UserError
from storage.sql import query
from tasks.domain.problems.duplicates import find_leaks, left_out
from tasks.domain.problems.problems import HeldOut, heldout_of, of_split, reserved_sources
from tasks.stage import Payload, Ref, stage, store

TEXT = ["problem_id", "source_id", "problem"]


@stage(Splits, version=1)
def split_pool(*, pool: Pool, heldout_per_source: int | HeldOut, seed: int) -> pa.Table:
    """Assign `train` or `heldout` to every problem of the pool. Schema: Splits."""
    return draw_split(store().read(pool), heldout_per_source, seed)


@stage(Splits, version=1)
def keep_clear(*, pool: Pool, splits: Splits, studied: Pool, heldout: Splits) -> Payload:
    """Return a lesson's split without the study's held-out problems and their near-duplicates. Schema: Splits. studied,
    heldout: the study's pool and its split."""
    held = of_split(store().read(studied, TEXT), store().read(heldout), "heldout")
    leaks = find_leaks(held, store().read(pool, TEXT), "heldout", "lesson")
    made = left_out(store().read(splits), leaks).cast(Splits.schema)
    return Payload(made, notes={"near_heldout": str(made["split"].to_pylist().count("near_heldout"))})


def draw_split(pool: pa.Table, heldout_per_source: int | HeldOut, seed: int) -> pa.Table:
    """Hold out exactly `heldout_per_source` problems of every source; near-duplicates stay on one side.

    Clusters are ordered by a hash of (seed, cluster), so the split is the same on every machine. Clusters that exceed
    the remaining quota of their source are skipped. In a pool of several sources, evaluation-only ones (MATH-500) are
    held out entirely, with their near-duplicates.

    >>> t = pa.table({"problem_id": list("abcd"), "source": ["s"] * 4, "cluster": ["a", "a", "c", "d"]})
    >>> sorted(draw_split(t, 2, 0)["split"].to_pylist())
    ['heldout', 'heldout', 'train', 'train']
    """
    rows = pool.select(["problem_id", "source", "cluster"]).to_pylist()
    if heldout_per_source == "all":
        split = pa.array(["heldout"] * len(rows), pa.string())
        return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": split}).cast(
            Splits.schema
        )
    sources = Counter(row["source"] for row in rows)
    reserved = reserved_sources(sources)
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        members[row["cluster"]][row["source"]] += 1
    heldout = {cluster for cluster, found in members.items() if found.keys() & reserved}
    left = Counter({s: n for s, n in heldout_of(sources, heldout_per_source).items() if s not in reserved})
    ranked = sorted(members.keys() - heldout, key=lambda c: (hashlib.sha256(f"{seed}:{c}".encode()).digest(), c))
    for cluster in ranked:
        if all(left[s] >= n for s, n in members[cluster].items()):
            heldout.add(cluster)
            left.subtract(members[cluster])
    for source, missing in sorted(left.items()):
        if missing > 0:
            raise UserError(
                f"split: near-duplicates stay together, so {heldout_per_source} of the {sources[source]} problems of"
                f" {source} cannot be held out; change pool.heldout_per_source"
            )
    split = ["heldout" if row["cluster"] in heldout else "train" for row in rows]
    return pa.table({"problem_id": pool["problem_id"], "source": pool["source"], "split": split}).cast(Splits.schema)


#: The value of `split` of evaluated problems.
IN_BENCHMARK = "benchmark"


@stage(Benchmark, version=1)
def choose_benchmark(
    *,
    name: str,
    pool: Pool,
    trained: tuple[Ref, ...],
    splits: tuple[Splits, ...],
    levels: tuple[str, ...],
    per_level: int | None,
    seed: int,
) -> Payload:
    """Choose the evaluated problems of a pool. trained, splits: the pools that the study trains on, each with its
    split. Schema: Benchmark."""
    problems, leaks = store().read(pool), []
    for training, split in zip(trained, splits, strict=True):
        known = of_split(store().read(training, TEXT), store().read(split), "train")
        leaks.append(find_leaks(problems.select(TEXT), known, name, "train"))
    chosen = benchmark_of(name, problems, pa.concat_tables(leaks), levels, per_level, seed)
    states = chosen["split"].to_pylist()
    notes = {"asked": str(states.count(IN_BENCHMARK)), "near_training": str(states.count("near_training"))}
    return Payload(chosen, notes=notes)


def benchmark_of(
    name: str, pool: pa.Table, leaks: pa.Table, levels: Sequence[str], per_level: int | None, seed: int
) -> pa.Table:
    """Return every problem of the pool, in order, with its state. Schema: Benchmark. leaks (schema: LEAKS) are left
    out.

    The first `per_level` of each level in the order of a hash of (seed, problem) are chosen, the same on every machine;
    a problem that leaks is replaced by the next one. Errors: UserError if a level has too few problems.

    >>> from tasks.domain.problems.duplicates import LEAKS
    >>> t = pa.table({"problem_id": ["a", "b"], "source": ["s"] * 2, "source_id": ["1", "2"], "level": ["1", "5"]})
    >>> benchmark_of("name", t, LEAKS.empty_table(), ("5",), None, 0)["split"].to_pylist()
    ['other_level', 'benchmark']
    """
    chosen = query(
        """
        with placed as (select *, row_number() over () as place from pool),
        near as (
            select problem_id, first(other_source_id order by similarity desc, other_source_id) as near,
                   max(similarity) as similarity
            from leaks group by problem_id),
        judged as (
            select placed.*, near, similarity,
                   case when len($levels) > 0 and coalesce(level, '') not in $levels then 'other_level'
                        when near is not null then 'near_training' else 'benchmark' end as state
            from placed left join near using (problem_id)),
        ranked as (
            select *, row_number() over (
                partition by state, level order by sha256($seed || ':' || problem_id), problem_id) as rank
            from judged)
        select $name as benchmark, problem_id, source, source_id, level,
               if(state = 'benchmark' and rank > $per_level, 'not_drawn', state) as split, near, similarity
        from ranked order by place
        """,
        {"name": name, "levels": list(levels), "per_level": per_level or pool.num_rows, "seed": str(seed)},
        pool=pool,
        leaks=leaks,
    ).cast(Benchmark.schema)
    available = Counter(row["level"] for row in chosen.to_pylist() if row["split"] == IN_BENCHMARK)
    found = Counter(pool["level"].to_pylist())
    for level in levels or (found if per_level else ()):
        if available[level] < (per_level or 1):
            raise UserError(
                f"benchmark {name}: level {level} needs {per_level or 1} problems that this study does not train on,"
                f" but only {available[level]} of its {found[level]} are left; choose other levels or a smaller number"
            )
    if not available:
        raise UserError(
            f"benchmark {name}: the study trains on all {pool.num_rows} problems or on near-duplicates of them; choose"
            " another set with --set benchmarks=…"
        )
    return chosen

"""Benchmarks: which problems of a published set are asked, chosen before any model is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from storage.artifacts.kinds import Benchmark, Pool, Splits
from storage.errors import UserError
from storage.sql import query
from tasks.domain.problems.leaks import find_leaks
from tasks.stage import Payload, Ref, stage, store

#: The value of `split` of the problems that are asked.
ASKED = "benchmark"
TEXT = ["problem_id", "source_id", "problem"]


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
    """What of the pool is asked. trained, splits: the pools that the study trains on, each with its split.
    Schema: Benchmark."""
    problems, leaks = store().read(pool), []
    for training, split in zip(trained, splits, strict=True):
        known = in_training(store().read(training, TEXT), store().read(split))
        leaks.append(find_leaks(problems.select(TEXT), known, name, "train"))
    chosen = benchmark_of(name, problems, pa.concat_tables(leaks), levels, per_level, seed)
    states = chosen["split"].to_pylist()
    notes = {"asked": str(states.count(ASKED)), "near_training": str(states.count("near_training"))}
    return Payload(chosen, notes=notes)


def in_training(pool: pa.Table, splits: pa.Table) -> pa.Table:
    """The pool's problems that may be trained on."""
    train = {row["problem_id"] for row in splits.to_pylist() if row["split"] == "train"}
    return pool.filter(pa.array([p in train for p in pool["problem_id"].to_pylist()], pa.bool_()))


def benchmark_of(
    name: str, pool: pa.Table, leaks: pa.Table, levels: Sequence[str], per_level: int | None, seed: int
) -> pa.Table:
    """Every problem of the pool, in its order. Schema: Benchmark. leaks (schema: LEAKS) are not asked.

    Of each level the first `per_level` in the order of a hash of (seed, problem), so the draw is the same on every
    machine; the next one stands in for a leak. Errors: UserError if a level has too few problems.

    >>> from tasks.domain.problems.leaks import LEAKS
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
    asked = Counter(row["level"] for row in chosen.to_pylist() if row["split"] == ASKED)
    found = Counter(pool["level"].to_pylist())
    for level in levels or (found if per_level else ()):
        if asked[level] < (per_level or 1):
            raise UserError(
                f"benchmark {name}: {per_level or 'some'} problems of level {level} are wanted; {found[level]} are"
                f" there, {asked[level]} of them no training problem of this study"
            )
    if not asked:
        raise UserError(
            f"benchmark {name}: each of its {pool.num_rows} problems is a training problem of this study or nearly one;"
            " --set benchmarks=… chooses others"
        )
    return chosen

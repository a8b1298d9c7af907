"""The problems of a study: pools, splits, benchmarks. Prepared once, before any model is seen, for every arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flows.study.resolve import PoolInputs, Study
from storage.artifacts.kinds import Benchmark, Pool, Splits
from tasks.benchmarks import choose_benchmark
from tasks.pool import build_pool
from tasks.splits import keep_clear, split_pool
from tasks.synthetic_pool import make_synthetic_pool


@dataclass(frozen=True, slots=True)
class Problems:
    """A pool, and what of it is for what: a split, or the choice of a benchmark."""

    pool: Pool
    splits: Splits


@dataclass(frozen=True, slots=True)
class Chosen:
    """A benchmark's pool, and which of its problems are asked."""

    pool: Pool
    choice: Benchmark


@dataclass(frozen=True, slots=True)
class Prepared:
    """All problems of a study, made before any model is seen. lessons: by name."""

    studied: Problems
    lessons: Mapping[str, Problems]
    benchmarks: tuple[Chosen, ...]


def prepare(study: Study) -> Prepared:
    """Pools, splits, and of each benchmark the problems that nothing in this study trains on, whatever the arm."""
    p = study.profile
    studied = _problems(study, "")
    lessons = {name: _kept_clear(_problems(study, name), name, studied) for name in study.pools if name}
    trained = (studied, *lessons.values())
    pools = {inputs: _built(inputs) for inputs in dict.fromkeys(study.benchmarks.values())}
    chosen = []
    for b in p.benchmarks:
        pool = pools[study.benchmarks[b.name]]
        choice = choose_benchmark.titled(f"choose {b.name}")(
            name=b.name,
            pool=pool,
            trained=tuple(t.pool for t in trained),
            splits=tuple(t.splits for t in trained),
            levels=b.levels,
            per_level=b.per_level,
            seed=b.seed,
        )
        chosen.append(Chosen(pool, choice))
    return Prepared(studied, lessons, tuple(chosen))


def _problems(study: Study, lesson: str) -> Problems:
    """The pool and split of a lesson, or of the study itself: the same for every arm, made before any model is seen."""
    p = next((x.pool for x in study.profile.lessons if x.name == lesson), study.profile.pool)
    inputs = study.pools[lesson]
    pool = _built(inputs) if inputs.sources else make_synthetic_pool(per_source=p.synthetic, seed=p.seed)
    return Problems(pool, split_pool(pool=pool, heldout_per_source=p.heldout_per_source, seed=p.split_seed))


def _built(inputs: PoolInputs) -> Pool:
    return build_pool(sources=inputs.sources, policy=inputs.policy)


def _kept_clear(taught: Problems, lesson: str, studied: Problems) -> Problems:
    """A lesson's problems, with what nearly equals a held-out problem of the study left out of its training."""
    clear = keep_clear.titled(f"keep {lesson} clear of held-out")(
        pool=taught.pool, splits=taught.splits, studied=studied.pool, heldout=studied.splits
    )
    return Problems(taught.pool, clear)

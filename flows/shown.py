"""Prompts of a study beside its problems, of all arms at once: before any of them is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.study import profile
from flows.study.resolve import PoolInputs, Study
from flows.study.sizes import problems_before_checks
from storage.artifacts.kinds import Benchmark, Pool
from storage.errors import UserError
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.splits import of_split
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.sampling.prompts import refuse_shown
from tasks.splits import ASKED
from tasks.stage import store

Rows = Sequence[Mapping[str, Any]]
COLUMNS = ["problem_id", "problem", "level"]


def refuse_shown_problems(study: Study, pools: Mapping[str, Pool], choices: Sequence[tuple[Pool, Benchmark]]) -> None:
    """pools: by name, the study's own under "". choices: of each benchmark its pool and what of it is asked. For a pool
    that is not built yet its files stand.

    Errors: UserError for a prompt of the study's own that shows one of its problems.
    """
    p = study.profile
    used = {p.arm(name).scaffold for arm in p.arms for name in (arm, p.arm(arm).head)}
    own = sorted((s for s in used if s.name not in SCAFFOLDS), key=lambda s: s.name)  # everybody's show none
    problems = list(_asked(study, pools, choices)) if own else []
    for scaffold in own:
        try:
            refuse_shown(scaffold, problems)
        except UserError as error:
            question = f"{p.called}: " if "/" in p.called else ""
            raise UserError(f"{question}{error}") from None


def _asked(study: Study, pools: Mapping[str, Pool], choices: Sequence[tuple[Pool, Benchmark]]) -> Iterator[str]:
    p = study.profile
    wanted = {"": p.pool, **{lesson.name: lesson.pool for lesson in p.lessons}}
    for name, pool in pools.items():
        yield from (row["problem"] for row in _rows(study, study.pools[name], pool, wanted[name]))
    for benchmark, (pool, choice) in zip(p.benchmarks, choices, strict=True):
        if store().fresh(choice):
            asked = of_split(store().read(pool, COLUMNS), store().read(choice), ASKED)
            yield from asked["problem"].to_pylist()
        elif benchmark.per_level is None:  # else only the choice says which
            rows = _rows(study, study.benchmarks[benchmark.name], pool)
            yield from (row["problem"] for row in rows if not benchmark.levels or row["level"] in benchmark.levels)


def _rows(study: Study, inputs: PoolInputs, pool: Pool, wanted: profile.Pool | None = None) -> Rows:
    """With problem and level; none where they are not to be had without making anything."""
    if store().fresh(pool):
        return store().read(pool, COLUMNS).to_pylist()
    if inputs.sources:
        return problems_before_checks({"sources": inputs.sources, "policy": inputs.policy}, study.places) or []
    return demo_problems(wanted.synthetic, wanted.seed, tuple(map(int, wanted.levels))) if wanted else []

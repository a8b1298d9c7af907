"""Pools: gradable problems from source files or synthetic arithmetic; each gold is checked in every answer form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import restored
from storage.artifacts.schemas import Pool, PoolIssues
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.grading.grading import Verdict
from tasks.domain.grading.kinds import RAISED
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.problems import PoolPolicy, pool_rows
from tasks.domain.problems.sources import SOURCES, SourceSpec
from tasks.domain.scaffolds import BARE
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.problem_files import Row, load_problems
from tasks.stage import Payload, progress, stage, store, toolbox, workdir

ISSUES_FILE = "issues.parquet"
BATCH = 256


@stage(Pool, version=1)
def build_pool(*, sources: tuple[SourceSpec, ...], policy: PoolPolicy) -> Payload:
    """Return the problems of all sources that the policy keeps, in the order of the files. Schema: Pool."""
    rows = load_problems((_place(s), s.name, s.only) for s in sources)
    pool, issues = _limited(rows, toolbox().graders(), policy, _kept_out(sources))
    if not pool:
        why = "; ".join(f"{one['source_id']}: {one['code']} ({one['detail']})" for one in issues[:2])
        raise UserError(
            f"pool: none of {len(rows)} problems is left after the checks, for example {why};"
            " `varband pool FILE --on-issue keep` shows the rest"
        )
    folder = workdir()
    pq.write_table(pa.Table.from_pylist(issues, schema=PoolIssues.schema), folder / ISSUES_FILE)
    notes = {"read": str(len(rows)), "kept": str(len(pool)), "issues": str(len(issues))}
    return Payload(pa.Table.from_pylist(pool, schema=Pool.schema), files=folder, notes=notes)


@stage(PoolIssues, version=1)
def list_pool_issues(*, pool: Pool) -> pa.Table:
    """Return the findings of the checks by problem, and whether the policy excluded it. Schema: PoolIssues."""
    return pq.ParquetFile(store().files(pool) / ISSUES_FILE).read().cast(PoolIssues.schema)


def as_first_checked(at: Store, sources: tuple[SourceSpec, ...], policy: PoolPolicy) -> PoolPolicy:
    """Return the policy with the grader version that first built this pool in the store. A new grader therefore changes
    neither a study's pool nor its split and trainings; `varband pool` reports its findings."""
    made = []
    for ref in at.refs("pool"):
        manifest = at.manifest(ref)
        if manifest.recipe.stage == build_pool.name:
            other = replace(policy, grader=restored(PoolPolicy, manifest.recipe.arguments["policy"]).grader)
            if ref == build_pool.named({"sources": sources, "policy": other}):
                made.append((manifest.provenance.created, other.grader))
    return replace(policy, grader=min(made)[1]) if made else policy


def _graded(graders: Graders, probes: Sequence[tuple[str, str, str, str]]) -> list[Verdict]:
    """Grade tuples of (answer form, answer, gold, answer kind). Errors: UserError for a plugin grader that raises on a
    gold, because it would raise on correct answers."""
    items = [
        GradeItem(replace(BARE[form], answer_kind=kind), BARE[form].answer_in_form(answer, trace=""), gold)
        for form, answer, gold, kind in probes
    ]
    verdicts: list[Verdict] = []
    for start in range(0, len(items), BATCH):
        verdicts += graders.grade(items[start : start + BATCH])
        progress(len(verdicts), len(items), "golds checked")
        for (_, answer, *_), verdict in zip(probes[start : start + BATCH], verdicts[start:], strict=True):
            if verdict.reason.startswith(RAISED):
                raise UserError(
                    f"{verdict.reason}, even for the gold {answer!r:.60}: fix the grader, or let it return no answers"
                )
    return verdicts


def _limited(
    rows: list[Row], graders: Graders, policy: PoolPolicy, kept_out: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Build a limited pool; check only as many golds as it needs. The problems keep the order of the files."""
    taken, order = min(policy.limit or len(rows), len(rows)), policy.in_pool_order(rows)
    place = {(row["source"], row["source_id"]): place for place, row in enumerate(rows)}
    while True:
        pool, issues = pool_rows(order[:taken], partial(_graded, graders), policy, kept_out)
        if taken == len(rows) or len(pool) >= (policy.limit or len(rows)):
            return sorted(pool, key=lambda row: place[row["source"], row["source_id"]]), issues
        taken = min(2 * taken, len(rows))


def _place(spec: SourceSpec) -> Path:
    return toolbox().place(spec.sha256, f"the source {spec.name}")


def _kept_out(sources: Sequence[SourceSpec]) -> list[str]:
    """Return the problems' texts of the evaluation sets that these sources must exclude, unless the pool itself
    contains these sets."""
    present = {spec.name for spec in sources}
    guards = {
        name: _place(spec).parent / SOURCES[name].file
        for spec in sources
        for name, _ in spec.guards
        if name not in present
    }
    return [row["problem"] for name, path in guards.items() for row in load_problems([(path, name, None)])]


@stage(Pool, version=1)
def make_synthetic_pool(*, per_source: int, seed: int, levels: tuple[int, ...] = ()) -> pa.Table:
    """Return `per_source` problems of each synthetic source, using `levels` in turn, or all levels. Schema: Pool."""
    return pa.Table.from_pylist(pool_rows(demo_problems(per_source, seed, levels))[0], schema=Pool.schema)

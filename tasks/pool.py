"""Pools: problems from source files or synthetic arithmetic, with golds (correct answers) that were checked in every
answer form; the splits of pools; and benchmarks."""

import hashlib
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import restored
from storage.artifacts.schemas import Benchmark, Pool, PoolIssues, Splits
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.sql import query
from tasks.domain.grading.grading import Verdict
from tasks.domain.grading.kinds import RAISED
from tasks.domain.problems.arithmetic import demo_problems
from tasks.domain.problems.duplicates import find_leaks, left_out
from tasks.domain.problems.problems import HeldOut, PoolPolicy, heldout_of, of_split, pool_rows, reserved_sources
from tasks.domain.problems.sources import SOURCES, SourceSpec
from tasks.domain.scaffolds import BARE
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.problem_files import Row, load_problems
from tasks.stage import Payload, Ref, progress, stage, store, toolbox, workdir

ISSUES_FILE = "issues.parquet"
BATCH = 256


@stage(Pool, version=1)
def build_pool(*, sources: tuple[SourceSpec, ...], policy: PoolPolicy) -> Payload:
    """Return the problems of all sources that the policy keeps, in the order of the files. Schema: Pool."""
    rows = load_problems((_place(s), s.name, s.only) for s in sources)
    pool, issues = _limited(rows, toolbox().graders(), policy, _kept_out(sources))
    if not pool:
        by_problem = {one["source_id"]: one for one in reversed(issues)}  # the first finding on each problem
        why = "; ".join(
            f"{name}: {by_problem[name]['code']} ({by_problem[name]['detail']})" for name in [*by_problem][:-3:-1]
        )
        raise UserError(
            f"pool: the checks excluded all {len(rows)} problems, for example {why}; `varband pool"
            f" {shlex.quote(str(_place(sources[0])))} --on-issue keep` lists all reasons"
        )
    folder = workdir()
    pq.write_table(pa.Table.from_pylist(issues, schema=PoolIssues.schema), folder / ISSUES_FILE)
    notes = {"read": str(len(rows)), "kept": str(len(pool)), "issues": str(len(issues))}
    return Payload(pa.Table.from_pylist(pool, schema=Pool.schema), files=folder, notes=notes)


@stage(PoolIssues, version=1)
def list_pool_issues(*, pool: Pool) -> pa.Table:
    """Return the findings on each problem, and whether the policy excluded the problem. Schema: PoolIssues."""
    return pq.ParquetFile(store().files(pool) / ISSUES_FILE).read().cast(PoolIssues.schema)


def as_first_checked(at: Store, sources: tuple[SourceSpec, ...], policy: PoolPolicy) -> PoolPolicy:
    """Return the policy with the grader version that first built this pool in the store. So a new grader changes
    neither a study's pool nor its split and trainings. `varband pool` reports what the new grader finds."""
    made = []
    for ref in at.refs("pool"):
        manifest = at.manifest(ref)
        if manifest.recipe.stage == build_pool.name:
            other = replace(policy, grader=restored(PoolPolicy, manifest.recipe.arguments["policy"]).grader)
            if ref == build_pool.named({"sources": sources, "policy": other}):
                made.append((manifest.provenance.created, other.grader))
    return replace(policy, grader=min(made)[1]) if made else policy


def _graded(graders: Graders, probes: Sequence[tuple[str, str, str, str]]) -> list[Verdict]:
    """Grade tuples of (answer form, answer, gold, answer kind). Raise UserError if a plug-in raises on a gold, because
    then it would also raise on correct answers."""
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
    """Build a limited pool, and check only as many golds as it needs. Problems keep the order of the files."""
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
    """Return the texts of evaluation sets that these sources exclude. Sets in the pool itself do not count."""
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
    """Return `per_source` problems of each synthetic source. Use these levels in turn, or all levels. Schema: Pool."""
    return pa.Table.from_pylist(pool_rows(demo_problems(per_source, seed, levels))[0], schema=Pool.schema)


# ---- splits and benchmarks: the held-out problems of a pool, and the evaluated problems of a published set

TEXT = ["problem_id", "source_id", "problem"]


@stage(Splits, version=1)
def split_pool(*, pool: Pool, heldout_per_source: int | HeldOut, seed: int) -> pa.Table:
    """Assign every problem of the pool to `train` or `heldout`. Schema: Splits."""
    return draw_split(store().read(pool), heldout_per_source, seed)


@stage(Splits, version=1)
def keep_clear(*, pool: Pool, splits: Splits, studied: Pool, heldout: Splits) -> Payload:
    """Return a lesson's split without problems that resemble held-out problems of `studied`. Schema: Splits."""
    held = of_split(store().read(studied, TEXT), store().read(heldout), "heldout")
    leaks = find_leaks(held, store().read(pool, TEXT), "heldout", "lesson")
    made = left_out(store().read(splits), leaks).cast(Splits.schema)
    return Payload(made, notes={"near_heldout": str(made["split"].to_pylist().count("near_heldout"))})


def draw_split(pool: pa.Table, heldout_per_source: int | HeldOut, seed: int) -> pa.Table:
    """Hold out exactly `heldout_per_source` problems of every source. Near-duplicates stay on one side.

    Clusters are ordered by a hash of (seed, cluster), so all machines make the same split. A cluster that is larger
    than the rest of its source's quota is skipped. If the pool has several sources, evaluation-only sources (MATH-500)
    are held out entirely, with their near-duplicates.

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


#: The `split` of problems that are evaluated.
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
    """Choose the problems of a pool to evaluate. trained, splits: pools that the study trains on, with their splits."""
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
    """Return every problem of the pool, in order, with its state. Schema: Benchmark. leaks: to leave out (schema
    LEAKS).

    Of each level, the first `per_level` problems are chosen, in the order of a hash of (seed, problem), which is the
    same on all machines. A leak is replaced by the next problem. Raise UserError if a level has too few problems.

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

"""Audit: lints over the designs of what is compared. Each lint is a named query, `storage/queries/lint_*.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts import Ref
from storage.sql import QUERIES, named, query
from tasks.domain.betabinomial import expectations
from tasks.domain.designs import filled, from_sampling, from_training, rows_as
from tasks.domain.leaks import find_leaks
from tasks.stage import stage, store

AUDIT = pa.schema(
    [("code", pa.string()), ("what", pa.string()), ("place", pa.string()), ("matter", pa.string()),
     ("value", pa.float64())]
)  # fmt: skip
Row = dict[str, Any]


def lints() -> list[str]:
    """Names of the lint queries, sorted."""
    return sorted(path.stem for path in QUERIES.glob("lint_*.sql"))


def findings_of(tables: Mapping[str, pa.Table]) -> pa.Table:
    """What every lint finds in these tables (tasks.domain.designs.TABLES; an absent one is empty). Columns: code; what
    was found; place: runs or files; matter: how much it could matter; value: its size, null where it has none."""
    everything = filled(tables)
    return pa.concat_tables([query(named(name), **everything).cast(AUDIT) for name in lints()])


@stage("audit", version=1)
def audit_designs(
    pool: Ref,
    splits: Ref,
    screenings: tuple[Ref, ...],
    trainings: tuple[Ref, ...],
    final: tuple[Ref, ...],
    diversities: tuple[Ref, ...],
) -> pa.Table:
    """Mismatched designs of one experiment, found before its figures are read. Columns of AUDIT."""
    held = f"held-out of {splits}"
    ends = {str(ref): _last_step(ref, final) for ref in trainings}
    arms = [store().manifest(ref).recipe.arguments["start"]["arm"] for ref in trainings]  # type: ignore[index]
    rows = [_sampled(ref, str(pool), "screening") for ref in screenings]
    rows += [_sampled(ref, held, "heldout") for ref in final]
    rows += [
        from_training(str(ref), store().manifest(ref).recipe.arguments, str(pool), arms.count(arm), ends[str(ref)])
        for ref, arm in zip(trainings, arms, strict=True)
    ]
    tables = {
        "designs": rows_as("designs", rows),
        "leaks": rows_as("leaks", leak_rows(store().read(pool), store().read(splits), {}, f"{pool}, {splits}")),
        "coverage": rows_as("coverage", _coverage([(ref, store().read(ref)) for ref in diversities], held)),
        "mislabelled": rows_as("mislabelled", _mislabelled(screenings, trainings)),
    }
    return findings_of(tables)


def _sampled(ref: Ref, problems: str, role: str) -> Row:
    arguments = store().manifest(ref).recipe.arguments
    table = store().read(ref, ["problem_id", "finish", "grader_version"])
    counted = query(
        """
        select count(distinct problem_id) as num_problems, avg((finish = 'length')::int) as truncated,
               string_agg(distinct grader_version, '+' order by grader_version) as grader from t
        """,
        t=table,
    ).to_pylist()[0]
    row = from_sampling(str(ref), arguments, problems, role, counted)
    return row | {"family": f"{row['family']} at step {arguments['policy']['step']}"}  # type: ignore[index]


def _last_step(training: Ref, final: Sequence[Ref]) -> int | None:
    policies = [store().manifest(ref).recipe.arguments["policy"] for ref in final]
    steps = [p["step"] for p in policies if p["adapter"] == str(training)]  # type: ignore[index]
    return max(steps, default=None)


def leak_rows(pool: pa.Table, splits: pa.Table, trains: Mapping[str, str], place: str) -> list[Row]:
    """Near-duplicates of held-out problems among the others. `trains`: problem → which arms train on it."""
    held_ids = pc.filter(splits["problem_id"], pc.equal(splits["split"], "heldout")).combine_chunks()
    held = pc.is_in(pool["problem_id"], value_set=held_ids)
    wanted = pool.select(["problem_id", "source_id", "problem"])
    found = find_leaks(wanted.filter(held), wanted.filter(pc.invert(held)), "heldout", "train")
    return [
        {"source_id": r["source_id"], "other_source_id": r["other_source_id"], "similarity": r["similarity"],
         "kind": r["kind"], "trains": trains.get(r["other_id"]), "place": place}
        for r in found.to_pylist()
    ]  # fmt: skip


def _coverage(tables: Sequence[tuple[Ref, pa.Table]], problems: str) -> list[Row]:
    rows = []
    for ref, table in tables:
        found = query(
            'select arm, "window", avg(coverage) as coverage from t where coverage is not null group by all',
            t=table,
        )
        rows += [r | {"problems": problems, "basis": "measured", "place": str(ref)} for r in found.to_pylist()]
    return rows


def _mislabelled(screenings: Sequence[Ref], trainings: Sequence[Ref]) -> list[Row]:
    """Dead groups of each screening that the training's group size is expected to make live."""
    sizes = {}
    for ref in trainings:
        arguments: Any = store().manifest(ref).recipe.arguments
        sizes[arguments["start"]["arm"]] = arguments["learner"]["group_size"]
    rows = []
    for ref in screenings:
        counts = query(
            "select arm, count(*) as n, count(*) filter (where correct) as c from t group by arm, problem_id",
            t=store().read(ref, ["arm", "problem_id", "correct"]),
        ).to_pylist()
        if counts and counts[0]["arm"] in sizes:
            arm = counts[0]["arm"]
            rows += mislabelled_rows(arm, [(r["n"], r["c"]) for r in counts], sizes[arm])
    return rows


def mislabelled_rows(arm: str, counts: Sequence[tuple[int, int]], group_size: int) -> list[Row]:
    found = [r for r in expectations(counts, group_size) if r["question"] == "mislabelled" and r.get("band") is None]
    return [{"arm": arm, "count": r["count"], "n": r["n"], "share": r["estimate"]} for r in found if r.get("count")]

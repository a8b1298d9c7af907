"""Lints: mismatched designs, each found by a named query over how the runs were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import Audit
from storage.sql import QUERIES, named, query
from tasks.designs import filled
from tasks.domain.problems.leaks import find_leaks
from tasks.domain.statistics.betabinomial import expectations

Row = dict[str, Any]


def lints() -> list[str]:
    """Names of the lint queries, sorted."""
    return sorted(path.stem for path in QUERIES.glob("lint_*.sql"))


def findings_of(tables: Mapping[str, pa.Table]) -> pa.Table:
    """What every lint finds in these tables (tasks.designs.TABLES; an absent one is empty).

    Columns: code; fact: what the rows show; inference: what may follow from it; place: runs or files; value: its size,
    null where it has none; query: which named query shows it.
    """
    everything, parts = filled(tables), []
    for name in lints():
        found = query(named(name), **everything)
        parts.append(found.append_column("query", pa.array([name] * found.num_rows, pa.string())).cast(Audit.schema))
    return pa.concat_tables(parts)


def leak_rows(pool: pa.Table, splits: pa.Table, trains: Mapping[str, str], place: str) -> list[Row]:
    """Near-duplicates of held-out problems among the others. `trains`: problem → which arms train on it."""
    sides = "from pool {} join (from splits where split = 'heldout') using (problem_id) order by problem_id"
    wanted = pool.select(["problem_id", "source_id", "problem"])
    held, others = (query(sides.format(how), pool=wanted, splits=splits) for how in ("semi", "anti"))
    found = find_leaks(held, others, "heldout", "train")
    return [
        {
            "source_id": r["source_id"],
            "other_source_id": r["other_source_id"],
            "similarity": r["similarity"],
            "kind": r["kind"],
            "trains": trains.get(r["other_id"]),
            "place": place,
        }
        for r in found.to_pylist()
    ]


def lesson_leak_rows(held: pa.Table, lesson: pa.Table, splits: pa.Table, place: str) -> list[Row]:
    """Held-out problems of the study that stand in a lesson's pool, taught or left out. held, lesson: problem_id,
    source_id, problem."""
    sides = {row["problem_id"]: row["split"] for row in splits.to_pylist()}
    others = lesson.filter(pa.array([sides[p] in ("train", "near_heldout") for p in lesson["problem_id"].to_pylist()]))
    return [
        {name: r[name] for name in ("source_id", "other_source_id", "similarity", "kind")}
        | {"trains": None if sides[r["other_id"]] == "train" else "left out of the lesson", "place": place}
        for r in find_leaks(held, others, "heldout", "lesson").to_pylist()
    ]


def mislabelled_rows(arm: str, counts: Sequence[tuple[int, int]], group_size: int) -> list[Row]:
    """Dead groups of a screening that the training's group size is expected to make live."""
    found = [r for r in expectations(counts, group_size) if r["metric"] == "mislabelled" and r.get("band") is None]
    return [{"arm": arm, "count": r["count"], "n": r["n"], "share": r["estimate"]} for r in found if r.get("count")]

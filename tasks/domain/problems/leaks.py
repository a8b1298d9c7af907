"""Leakage: problems of one set that stand, exactly or nearly, in another."""

from __future__ import annotations

import pyarrow as pa

from tasks.domain.problems.duplicates import near_duplicates

LEAKS = pa.schema(
    [
        pa.field(name, pa.string(), nullable=False)
        for name in ("problem_id", "source_id", "split", "other_id", "other_source_id", "other_split", "kind")
    ]
    + [pa.field("similarity", pa.float64(), nullable=False)]
)


def find_leaks(one: pa.Table, other: pa.Table, one_split: str, other_split: str) -> pa.Table:
    """Exact and near duplicates between two sets (columns problem_id, source_id, problem). Schema: LEAKS."""
    left, right = one.to_pylist(), other.to_pylist()
    pairs = near_duplicates([r["problem"] for r in left], [r["problem"] for r in right])
    rows = []
    for pair in pairs:
        a, b = left[pair.first], right[pair.second]
        rows.append(
            {
                "problem_id": a["problem_id"],
                "source_id": a["source_id"],
                "split": one_split,
                "other_id": b["problem_id"],
                "other_source_id": b["source_id"],
                "other_split": other_split,
                "kind": "exact" if a["problem_id"] == b["problem_id"] else "near",
                "similarity": pair.similarity,
            }
        )
    return pa.Table.from_pylist(rows, schema=LEAKS)

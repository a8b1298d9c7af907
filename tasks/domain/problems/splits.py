"""Sides of a split."""

from __future__ import annotations

import pyarrow as pa


def of_split(problems: pa.Table, splits: pa.Table, split: str | None) -> pa.Table:
    """The problems of one split, in the pool's order; all of them for null."""
    if split is None:
        return problems
    chosen = {row["problem_id"] for row in splits.to_pylist() if row["split"] == split}
    return problems.filter(pa.array([p in chosen for p in problems["problem_id"].to_pylist()], pa.bool_()))

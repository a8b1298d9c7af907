"""Leakage: problems of one set that occur, exactly or nearly, in another."""

from __future__ import annotations

import pyarrow as pa

from tasks.domain.problems.duplicates import near_duplicates

_NAMES = ("problem_id", "source_id", "split", "other_id", "other_source_id", "other_split", "kind")
LEAKS = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in _NAMES]
    + [pa.field("similarity", pa.float64(), nullable=False)]
)


def find_leaks(one: pa.Table, other: pa.Table, one_split: str, other_split: str) -> pa.Table:
    """Return exact and near duplicates between two sets (columns problem_id, source_id, problem). Schema: LEAKS."""
    left, right = one.to_pylist(), other.to_pylist()
    rows = []
    for pair in near_duplicates([r["problem"] for r in left], [r["problem"] for r in right]):
        a, b = ((r["problem_id"], r["source_id"]) for r in (left[pair.first], right[pair.second]))
        kind = "exact" if a[0] == b[0] else "near"
        rows.append(dict(zip(LEAKS.names, (*a, one_split, *b, other_split, kind, pair.similarity), strict=True)))
    return pa.Table.from_pylist(rows, schema=LEAKS)


def left_out(splits: pa.Table, leaks: pa.Table) -> pa.Table:
    """Mark a lesson's training problems that leak into a held-out set as `near_heldout`, which excludes them from
    training and evaluation. leaks: schema LEAKS, the lesson's problems as `other_id`.

    >>> splits = pa.table({"problem_id": ["a", "b"], "source": ["s", "s"], "split": ["train", "heldout"]})
    >>> leaks = pa.table({"other_id": ["a", "b"]})
    >>> left_out(splits, leaks)["split"].to_pylist()
    ['near_heldout', 'heldout']
    """
    near = set(leaks["other_id"].to_pylist())
    ids, split = splits["problem_id"].to_pylist(), splits["split"].to_pylist()
    named = ["near_heldout" if p in near and s == "train" else s for p, s in zip(ids, split, strict=True)]
    return splits.set_column(splits.schema.get_field_index("split"), "split", pa.array(named, pa.string()))

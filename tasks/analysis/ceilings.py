"""What a diversity figure is held against: how far apart traces of different problems lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tasks.analysis.spreads import matrix

CEILINGS = pa.schema(
    [("arm", pa.string()), ("step", pa.int32()), ("seed", pa.int64()), ("window", pa.string()),
     ("within", pa.float64()), ("between", pa.float64()), ("relative", pa.float64()), ("n", pa.int64()),
     ("problems", pa.int64()), ("reason", pa.string())]
)  # fmt: skip


def ceilings_of(embeddings: pa.Table) -> pa.Table:
    """One row per policy and window. within: mean distance of two traces of one problem, over all such pairs;
    between: of two traces of different problems, what shuffling the problems would give; relative: their ratio,
    free of how wide an arm's vocabulary spreads all of its traces. n: traces."""
    rows: list[dict[str, Any]] = []
    if embeddings.num_rows == 0:
        return CEILINGS.empty_table()
    keys = list(zip(*(embeddings[c].to_pylist() for c in ("arm", "step", "seed", "window")), strict=True))
    problems, vectors_ND = np.array(embeddings["problem_id"].to_pylist()), matrix(embeddings["embedding"])
    for key in sorted(set(keys)):
        mine = np.array([k == key for k in keys])
        named = dict(zip(("arm", "step", "seed", "window"), key, strict=True))
        rows.append(named | _one(vectors_ND[mine], problems[mine]))
    return pa.Table.from_pylist(rows, schema=CEILINGS)


def _one(vectors_ND: np.ndarray, problem_N: np.ndarray) -> dict[str, Any]:
    v = vectors_ND.astype(np.float64)
    _, index_N, size_P = np.unique(problem_N, return_inverse=True, return_counts=True)
    sums_PD = np.zeros((len(size_P), v.shape[1]))
    np.add.at(sums_PD, index_N, v)
    squares = float((v * v).sum())
    inside = float((sums_PD * sums_PD).sum()) - squares
    everything = float(sums_PD.sum(axis=0) @ sums_PD.sum(axis=0)) - squares
    pairs_in, pairs_all = int((size_P * (size_P - 1)).sum()), len(v) * (len(v) - 1)
    row: dict[str, Any] = {"n": len(v), "problems": len(size_P)}
    if pairs_in == 0 or pairs_all == pairs_in:
        return row | {"reason": "one problem only" if len(size_P) == 1 else "no problem has two traces"}
    within, between = 1 - inside / pairs_in, 1 - (everything - inside) / (pairs_all - pairs_in)
    return row | {"within": within, "between": between, "relative": within / between if between > 0 else None}

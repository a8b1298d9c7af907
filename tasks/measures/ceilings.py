"""What a diversity figure is held against: a floor, one trace in other words; a ceiling, shuffled problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import DiversityCeilings
from storage.sql import query
from tasks.domain.statistics.rewording import REWORDED
from tasks.measures.diversity_measures import matrix

KEYS = ("arm", "step", "seed", "window")


def ceilings_of(embeddings: pa.Table) -> pa.Table:
    """One row per policy and window.

    floor: mean distance of a trace from itself in other words, over `reworded` traces, one a problem (of the whole
    trace only). within: mean distance of two traces of one problem, over all such pairs. between: of two traces of
    different problems, what shuffling the problems would give. position: where `within` lies from floor (0) to
    ceiling (1), free of how wide an arm's vocabulary spreads all of its traces; from 0 where there is no floor.
    coverage: mean share of a trace that the encoder saw; n: traces.
    """
    rows: list[dict[str, Any]] = []
    shown = query('from t where "window" <> $w', {"w": REWORDED}, t=embeddings)
    if shown.num_rows == 0:
        return DiversityCeilings.schema.empty_table()
    floors = _floors(embeddings)
    keys = list(zip(*(shown[c].to_pylist() for c in KEYS), strict=True))
    problem_N, vectors_ND = np.array(shown["problem_id"].to_pylist()), matrix(shown["embedding"])
    coverage_N = shown["coverage"].to_numpy()
    for key in sorted(set(keys)):
        mine = np.array([k == key for k in keys])
        floor_M = floors.get(key[:3], np.zeros(0)) if key[3] == "whole" else np.zeros(0)
        row = dict(zip(KEYS, key, strict=True)) | {"reworded": len(floor_M), "coverage": float(coverage_N[mine].mean())}
        if len(floor_M):
            row["floor"] = float(floor_M.mean())
        rows.append(row | _one(vectors_ND[mine], problem_N[mine], row.get("floor", 0.0)))
    return pa.Table.from_pylist(rows, schema=DiversityCeilings.schema)


def _floors(embeddings: pa.Table) -> dict[tuple[str, int, int], np.ndarray]:
    """(arm, step, seed) → distances of traces from themselves in other words."""
    pairs = query(
        """
        select a.arm, a.step, a.seed, a.embedding as said, b.embedding as again
        from t a join t b using (arm, step, seed, problem_id, rollout)
        where a."window" = 'whole' and b."window" = $w order by a.arm, a.step, a.seed, problem_id
        """,
        {"w": REWORDED},
        t=embeddings,
    )
    if pairs.num_rows == 0:
        return {}
    said, again = (matrix(pairs[c]).astype(np.float64) for c in ("said", "again"))
    distance_M = 1 - (said * again).sum(axis=1)
    keys = list(zip(*(pairs[c].to_pylist() for c in KEYS[:3]), strict=True))
    return {key: distance_M[[k == key for k in keys]] for key in set(keys)}


def _one(vectors_ND: np.ndarray, problem_N: np.ndarray, floor: float) -> dict[str, Any]:
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
    position = (within - floor) / (between - floor) if between > floor else None
    return row | {"within": within, "between": between, "position": position}

"""What a diversity figure is held against: a floor, one trace in other words; a ceiling, shuffled problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    whole, again = (embeddings.filter(pc.field("window") == w) for w in ("whole", REWORDED))
    return ceilings_of_parts([embeddings], [(again, whole)])


def ceilings_of_parts(embeddings: Iterable[pa.Table], again: Iterable[tuple[pa.Table, pa.Table]]) -> pa.Table:
    """The same, part by part: of whole problems in a window; of reworded traces, with those of their problems."""
    sums: dict[tuple[Any, ...], Sums] = {}
    for part in embeddings:
        shown = query('from t where "window" <> $w', {"w": REWORDED}, t=part)
        if shown.num_rows == 0:
            continue
        keys = list(zip(*(shown[c].to_pylist() for c in KEYS), strict=True))
        problem_N, vectors_ND = np.array(shown["problem_id"].to_pylist()), matrix(shown["embedding"])
        coverage_N = shown["coverage"].to_numpy()
        for key in set(keys):
            mine = np.array([k == key for k in keys])
            sums.setdefault(key, Sums()).add(vectors_ND[mine], problem_N[mine], float(coverage_N[mine].sum()))
    floors = _floors(again) if sums else {}
    rows = []
    for key, found in sorted(sums.items()):
        floor_M = np.array(floors.get(key[:3], ()) if key[3] == "whole" else ())
        row = dict(zip(KEYS, key, strict=True)) | {"reworded": len(floor_M), "coverage": found.coverage / found.n}
        if len(floor_M):
            row["floor"] = float(floor_M.mean())
        rows.append(row | found.figures(row.get("floor", 0.0)))
    return pa.Table.from_pylist(rows, schema=DiversityCeilings.schema)


def _floors(parts: Iterable[tuple[pa.Table, pa.Table]]) -> dict[tuple[Any, ...], list[float]]:
    """(arm, step, seed) → distances of traces from themselves in other words."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for again, whole in parts:
        pairs = query(
            """
            select a.arm, a.step, a.seed, a.embedding as said, b.embedding as again
            from whole a join again b using (arm, step, seed, problem_id, rollout)
            order by a.arm, a.step, a.seed, problem_id
            """,
            whole=whole,
            again=again,
        )
        if pairs.num_rows:
            said_ND, again_ND = (matrix(pairs[c]).astype(np.float64) for c in ("said", "again"))
            keys = zip(*(pairs[c].to_pylist() for c in KEYS[:3]), strict=True)
            for key, distance in zip(keys, 1 - (said_ND * again_ND).sum(axis=1), strict=True):
                found.setdefault(key, []).append(float(distance))
    return found


@dataclass(slots=True)
class Sums:
    """What the figures of one policy and window are made of. inside: of squared sums, a problem; total_D: of all
    vectors; squares: of their lengths; pairs: of two traces of one problem, in both orders."""

    n: int = 0
    problems: int = 0
    pairs: int = 0
    inside: float = 0.0
    squares: float = 0.0
    coverage: float = 0.0
    total_D: np.ndarray | float = 0.0

    def add(self, vectors_ND: np.ndarray, problem_N: np.ndarray, coverage: float) -> None:
        """Traces of whole problems."""
        v = vectors_ND.astype(np.float64)
        _, index_N, size_P = np.unique(problem_N, return_inverse=True, return_counts=True)
        sums_PD = np.zeros((len(size_P), v.shape[1]))
        np.add.at(sums_PD, index_N, v)
        self.n, self.problems = self.n + len(v), self.problems + len(size_P)
        self.pairs += int((size_P * (size_P - 1)).sum())
        self.inside += float((sums_PD * sums_PD).sum())
        self.squares += float((v * v).sum())
        self.coverage += coverage
        self.total_D = self.total_D + sums_PD.sum(axis=0)

    def figures(self, floor: float) -> dict[str, Any]:
        inside, everything = (self.inside - self.squares, float(np.square(self.total_D).sum()) - self.squares)
        apart = self.n * (self.n - 1) - self.pairs
        row: dict[str, Any] = {"n": self.n, "problems": self.problems}
        if self.pairs == 0 or apart == 0:
            return row | {"reason": "one problem only" if self.problems == 1 else "no problem has two traces"}
        within, between = 1 - inside / self.pairs, 1 - (everything - inside) / apart
        position = (within - floor) / (between - floor) if between > floor else None
        return row | {"within": within, "between": between, "position": position}

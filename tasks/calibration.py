"""Calibration: the thresholds of partitions by trace and by strategy, set on labelled traces and judged on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import Calibrations
from storage.errors import UserError
from tasks.domain.partitions.by_strategy import jaccard, profile
from tasks.domain.partitions.calibration import Counts, LabelledGroup, left_out, threshold_of
from tasks.domain.partitions.classes import similarities
from tasks.domain.statistics.means import ratio
from tasks.engines.encoding.labelled import labelled_problems, labelled_sha256
from tasks.stage import Payload, stage, toolbox

FEW = "fewer than two problems join a pair, or all of them alike: no interval"


@stage(Calibrations, version=1)
def calibrate_partitions(*, encoder: str, weights_sha256: str, max_tokens: int, labelled: str) -> Payload:
    """One row a partition. labelled: digest of the labelled traces."""
    if labelled != labelled_sha256():
        raise UserError(f"labelled traces {labelled[:12]}… are not the ones installed ({labelled_sha256()[:12]}…)")
    problems = labelled_problems()
    solutions = [problem.solutions for problem in problems]
    vectors_ND, _ = (
        toolbox()
        .embedder(encoder, weights_sha256, max_tokens)
        .encode([trace for problem in problems for trace in problem.traces])
    )
    ends = np.cumsum([len(problem.traces) for problem in problems])[:-1]
    near = [similarities(part_ND) for part_ND in np.split(vectors_ND, ends)]
    alike = [jaccard([profile(trace) for trace in problem.traces]) for problem in problems]
    rows = [
        {"partition": "trace", "encoder": encoder} | calibrated(list(map(LabelledGroup, near, solutions))),
        {"partition": "strategy"} | calibrated(list(map(LabelledGroup, alike, solutions))),
    ]
    notes = {f"{row['partition']}_{name}": f"{row[name]:.4f}" for row in rows for name in ("precision", "recall")}
    return Payload(pa.Table.from_pylist(rows, schema=Calibrations.schema), notes=notes)


def calibrated(groups: Sequence[LabelledGroup]) -> dict[str, Any]:
    """The threshold that all groups set; precision and recall of each group by the threshold that the others set."""
    apart = left_out(groups)
    counts = sum(apart, Counts())
    row: dict[str, Any] = {
        "threshold": threshold_of(groups),
        "joined": counts.true_joined + counts.false_joined,
        "joined_rightly": counts.true_joined,
        "same": counts.true_joined + counts.false_apart,
        "pairs": counts.true_joined + counts.false_joined + counts.false_apart + counts.true_apart,
        "problems": len(groups),
        "traces": sum(len(group.solution_N) for group in groups),
    }
    hit_P = np.array([one.true_joined for one in apart], np.float64)
    for name, of in (("precision", "false_joined"), ("recall", "false_apart")):
        row |= _share(name, hit_P, hit_P + np.array([getattr(one, of) for one in apart], np.float64))
    return row


def _share(name: str, hit_P: np.ndarray, of_P: np.ndarray) -> dict[str, Any]:
    """Of all problems' pairs, with the interval of a ratio over problems: pairs of one problem are not independent."""
    if not hit_P.any():
        return {name: 0.0 if of_P.any() else None, "reason": FEW}
    at, low, high = ratio(hit_P[None, :], of_P[None, :], trained=False)
    if not np.isfinite(low):
        return {name: at, "reason": FEW}
    return {name: at, f"{name}_low": low, f"{name}_high": min(high, 1.0)}

"""Majority voting and selection: maj@k and best-of-k from the same rollouts that pass@k uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.sql import query
from tasks.analysis.groups import together
from tasks.domain.intervals import bootstrap_mean
from tasks.domain.voting import majority_chance, shortest_chance
from tasks.stage import Ref, stage, store

VOTES = pa.schema(
    [("metric", pa.string()), ("arm", pa.string()), ("step", pa.int32()), ("source", pa.string()), ("k", pa.int32()),
     ("estimate", pa.float64()), ("low", pa.float64()), ("high", pa.float64()), ("n", pa.int64()),
     ("reason", pa.string())]
)  # fmt: skip
COLUMNS = ["problem_id", "source", "arm", "adapter", "step", "seed", "rollout", "canonical", "correct", "num_tokens"]


def votes_of(rollouts: pa.Table, ks: Sequence[int], draws: int, seed: int, subsets: int = 500) -> pa.Table:
    """One row per metric, (arm, step), source and k, over problems.

    metric: `maj@k`, the most frequent canonical answer of k rollouts is right (ties share; no answer casts no vote);
    `shortest@k`, the shortest of k rollouts that gave an answer is right: a selector that costs nothing. Both over
    `subsets` random k-subsets per group; pass@k bounds them from above. Null where a group has fewer than k.
    """
    groups = query(
        """
        select arm, step, source, problem_id, coalesce(adapter, '') as adapter,
               list(canonical order by rollout) as answers, list(correct order by rollout) as correct,
               list(num_tokens order by rollout) as lengths
        from rollouts group by all order by arm, step, source, problem_id, adapter
        """,
        rollouts=rollouts,
    ).to_pylist()
    rng = np.random.default_rng(seed)
    values: dict[tuple[str, str, int, int], dict[tuple[str, str], list[float | None]]] = {}
    for g in groups:
        order_SN = rng.random((subsets, len(g["answers"]))).argsort(axis=1)
        for k in ks:
            chosen = order_SN[:, :k] if k <= len(g["answers"]) else None
            for metric, found in (
                ("maj@k", chosen if chosen is None else majority_chance(g["answers"], g["correct"], chosen)),
                ("shortest@k", chosen if chosen is None else shortest_chance(g["answers"], g["correct"], g["lengths"],
                                                                             chosen)),
            ):  # fmt: skip
                place = values.setdefault((metric, g["arm"], g["step"], k), {})
                place.setdefault((g["source"], g["problem_id"]), []).append(found)  # type: ignore[arg-type]
    rows: list[dict[str, Any]] = []
    for (metric, arm, step, k), problems in values.items():
        for source in ("all", *sorted({s for s, _ in problems})):
            part = [v for (s, _), v in problems.items() if source in ("all", s)]
            row = {"metric": metric, "arm": arm, "step": step, "source": source, "k": k, "n": len(part)}
            if any(v is None for seeds in part for v in seeds):
                rows.append(row | {"reason": f"a problem has fewer than k = {k} rollouts"})
                continue
            interval = bootstrap_mean(np.array([np.mean(seeds) for seeds in part]), draws, seed)  # type: ignore[arg-type]
            assert interval is not None
            rows.append(row | {"estimate": interval.estimate, "low": interval.low, "high": interval.high})
    return pa.Table.from_pylist(rows, schema=VOTES)


@stage("votes", version=1)
def measure_votes(rollouts: tuple[Ref, ...], ks: tuple[int, ...], draws: int = 2_000, seed: int = 0) -> pa.Table:
    """maj@k and shortest@k of every (arm, step), per source and for all of them."""
    return votes_of(together([store().read(ref, COLUMNS) for ref in rollouts]), ks, draws, seed)

"""Searches made up from rollouts: a round each, and a node that was cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import Pool, Rollouts, Searches
from storage.artifacts.store import Store

BUDGETS = (400, 800, 1600, 3200)


def searched(put: Callable[..., Any], store: Store, rollouts: Sequence[Rollouts], pool: Pool) -> tuple[Searches, ...]:
    """Of each artifact of rollouts one search that answers with the first and one that answers with the newest."""
    return tuple(
        put(
            store,
            Searches,
            rows_of(store.read(ref), method),
            about=[method, str(ref)],
            inputs={"pool": [str(pool)], "rollouts": [str(ref)]},
        )
        for ref in rollouts
        for method in ("first", "majority")
    )


def rows_of(rollouts: pa.Table, method: str) -> pa.Table:
    rows: list[dict[str, Any]] = []
    first: dict[str, dict[str, Any]] = {}
    for row in rollouts.to_pylist():
        chosen = first.setdefault(row["problem_id"], row) if method == "first" else row
        name = f"{row['problem_id']}/{row['rollout']}"
        told = {column: row.get(column) for column in Searches.schema.names}
        cut = "a prompt of 900 tokens and max_tokens=128 do not fit the context of 512" if row["rollout"] == 7 else None
        rows.append(
            told
            | {
                "method": method,
                "round": row["rollout"],
                "node": name,
                "operator": "draw",
                "parents": f"{row['problem_id']}/0" if row["rollout"] else "",
                "cut": cut,
                "num_scored_tokens": 0,
                "chosen": f"{row['problem_id']}/{chosen['rollout']}",
                "chosen_answer": chosen["answer"],
                "chosen_correct": chosen["correct"],
            }
        )
    return pa.Table.from_pylist(rows, schema=Searches.schema)

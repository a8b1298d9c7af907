"""What was measured of sampling: lengths from the ledger, rates from what runs were charged."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.spending import charges
from storage.sql import query
from tasks.domain.search.method import PREFIX


@dataclass(frozen=True, slots=True)
class Length:
    """Mean tokens of a rollout. low, high: completions of nine problems in ten are between, by a problem's mean.

    basis: `measured`; `guessed` from another max_tokens, arm or model; `assumed` if this store holds no rollouts that
    are alike.
    """

    prompt: float
    completion: float
    basis: str
    low: float
    high: float


def likely_length(ledger: Ledger, arm: str, model: str, max_tokens: int) -> Length | None:
    """Return the length of an arm's rollouts on a model under max_tokens, whatever the step; None if nothing is known.

    It is that of the rollouts of this store that are most alike: of this arm on this model, of another arm on this
    model, of this arm on another model. Later rounds of searches, whose prompts hold earlier completions, are left out.
    """
    measured = [(a, told) for a, told in ledger.accounts() if isinstance(told.get("max_tokens"), int)]
    own = [(a, told) for a, told in measured if told.get("arm") == arm and told.get("model", model) == model]
    for basis, alike in (
        ("measured", [a for a, told in own if told["max_tokens"] == max_tokens]),
        ("guessed", [a for a, _ in own]),
        ("guessed", [a for a, told in measured if told.get("model") == model]),
        ("guessed", [a for a, told in measured if told.get("arm") == arm]),
    ):
        columns = ["problem_id", "num_prompt_tokens", "num_tokens"]
        parts = [rows for a in alike if (rows := ledger.rows(a, columns)) is not None]
        if not parts:
            continue
        (found,) = query(
            "with problems as (select avg(num_prompt_tokens) p, avg(least(num_tokens, $max)) c, count(*) n from rows"
            " where not starts_with(problem_id, $later) group by problem_id)"
            " select sum(p * n) / sum(n) p, sum(c * n) / sum(n) c, quantile_cont(c, 0.05) low,"
            " quantile_cont(c, 0.95) high from problems",
            {"later": PREFIX, "max": max_tokens},
            rows=pa.concat_tables(parts),
        ).to_pylist()
        if found["p"] is not None:
            return Length(found["p"], found["c"], basis, found["low"], found["high"])
    return None


def measured_rates(store: Store, profile: str) -> dict[str, float]:
    """Tokens per GPU-hour of rollouts and of training, from what runs of this profile were charged."""
    rows = query(
        "select kind, sum(tokens) / sum(gpu_hours) as rate from charged where run like $profile || '-%'"
        " group by kind having sum(gpu_hours) > 0 and sum(tokens) > 0",
        {"profile": profile},
        charged=charges(store.root),
    )
    return {row["kind"]: row["rate"] for row in rows.to_pylist()}

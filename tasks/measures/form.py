"""Form: how many rollouts gave no answer, had no valid tags, were cut off. It stands beside every accuracy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from storage.sql import query

COLUMNS = ["verdict", "tag_valid", "finish"]


def form_of(rollouts: pa.Table) -> dict[str, Any]:
    """rollouts: their number; no_answer, invalid_tags, truncated: shares of them, null for none.

    >>> form_of(pa.table({"verdict": ["no_answer", "wrong"], "tag_valid": [False, True], "finish": ["length", "stop"]}))
    {'rollouts': 2, 'no_answer': 0.5, 'invalid_tags': 0.5, 'truncated': 0.5}
    """
    return query(
        """
        select count(*) as rollouts, avg((verdict = 'no_answer')::int) as no_answer,
               avg((not tag_valid)::int) as invalid_tags, avg((finish = 'length')::int) as truncated
        from rollouts
        """,
        rollouts=rollouts,
    ).to_pylist()[0]


def delivered(rollouts: pa.Table) -> dict[str, Any]:
    """The same with the mean accuracy."""
    return form_of(rollouts) | query("select avg(correct::int) as accuracy from t", t=rollouts).to_pylist()[0]


def in_words(form: dict[str, Any]) -> str:
    """
    >>> in_words({"rollouts": 8, "no_answer": 0.25, "invalid_tags": 0.0, "truncated": 1.0})
    '8 rollouts: 25.0 % without an answer, 0.0 % without valid tags, 100.0 % cut off'
    """
    shares = (
        f"{100 * form[name]:.1f} % {said}"
        for name, said in (
            ("no_answer", "without an answer"),
            ("invalid_tags", "without valid tags"),
            ("truncated", "cut off"),
        )
        if form[name] is not None
    )
    return f"{form['rollouts']:,} rollouts: {', '.join(shares)}"

"""Families of tests: which p-values are corrected together, and how. Declared where a table is made.

One family of a study is confirmatory, the differences of gains over all sources (Holm): of studies of like arms one in
twenty says otherwise. All others are exploratory (Benjamini-Hochberg): of each by itself one in twenty does, where all
arms are alike; of several together more, and where some differ it is the share of false findings that is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tasks.domain.statistics.paired_tests import adjust

Family = tuple[str, Literal["holm", "bh"]]


def in_families(
    rows: Sequence[dict[str, Any]], family_of: Callable[[dict[str, Any]], Family], p: str = "p_value"
) -> list[dict[str, Any]]:
    """Rows with p_adjusted and family, `name, method of number`. Rows without a p-value stay as they are.

    >>> found = in_families([{"p_value": 0.01}, {"p_value": 0.04}, {}], lambda row: ("gains", "holm"))
    >>> [(r.get("p_adjusted"), r.get("family")) for r in found]
    [(0.02, 'gains: Holm of 2'), (0.04, 'gains: Holm of 2'), (None, None)]
    """
    named = [family_of(row) if row.get(p) is not None else None for row in rows]
    out = [dict(row) for row in rows]
    for family in dict.fromkeys(f for f in named if f is not None):
        name, method = family
        mine = [row for row, own in zip(out, named, strict=True) if own == family]
        for row, fixed in zip(mine, adjust([row[p] for row in mine], method), strict=True):
            row["p_adjusted"] = fixed
            row["family"] = f"{name}: {'Holm' if method == 'holm' else 'Benjamini-Hochberg'} of {len(mine)}"
    return out

"""Families of tests: which p-values are corrected together, and how. Declared where a table is made.

Two families are confirmatory (Holm): the differences of gains over all sources and, where a study compares objectives,
what each has over the baseline. Of studies in which nothing differs one in twenty says otherwise. All others are
exploratory (Benjamini-Hochberg): of each by itself one in twenty does, where nothing differs; of several together more,
and where some differ it is the share of false findings that is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tasks.domain.statistics.paired_tests import adjust

Family = tuple[str, Literal["holm", "bh"]]


def family_of_gain(row: dict[str, Any]) -> Family:
    """Of gains that were measured and of those that were published."""
    return "gains" if row["source"] == "all" else "gains by source", "bh"


def in_families(
    rows: Sequence[dict[str, Any]],
    family_of: Callable[[dict[str, Any]], Family],
    p: str = "p_value",
    *,
    beside: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Rows with p_adjusted and family, `name, method of number`. Rows without a p-value stay as they are. beside: other
    p-values of the rows, each corrected by itself over the rows of a family that have it, as `<name>_corrected`.

    >>> found = in_families([{"p_value": 0.01}, {"p_value": 0.04}, {}], lambda row: ("gains", "holm"))
    >>> [(r.get("p_adjusted"), r.get("family")) for r in found]
    [(0.02, 'gains: Holm of 2'), (0.04, 'gains: Holm of 2'), (None, None)]
    """
    out = [dict(row) for row in rows]
    families: dict[Family, list[dict[str, Any]]] = {}
    for row in out:
        families.setdefault(family_of(row), []).append(row)
    for (name, method), members in families.items():
        for raw, corrected in ((p, "p_adjusted"), *((other, f"{other}_corrected") for other in beside)):
            mine = [row for row in members if row.get(raw) is not None]
            for row, fixed in zip(mine, adjust([row[raw] for row in mine], method), strict=True):
                row[corrected] = fixed
                if raw == p:
                    row["family"] = f"{name}: {'Holm' if method == 'holm' else 'Benjamini-Hochberg'} of {len(mine)}"
    return out

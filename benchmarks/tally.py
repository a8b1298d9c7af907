"""How often simulated rows hold their truth, and which targets they miss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LOW, HIGH = 0.92, 0.98
Row = dict[str, Any]


def tally(rows: Sequence[Row], truths: Sequence[float]) -> Row:
    """Of rows with an interval: share that holds its truth, median width, how many have none. below_05: share of all
    rows whose p is below .05; null for rows that have no p."""
    kept = [(r["low"], r["high"], truth) for r, truth in zip(rows, truths, strict=True) if r.get("low") is not None]
    tested = [r["p_value"] is not None and r["p_value"] < 0.05 for r in rows if "p_value" in r]
    return {
        "printed": len(kept) / max(len(rows), 1),
        "covers": float(np.mean([low - 1e-12 <= truth <= high + 1e-12 for low, high, truth in kept])) if kept else None,
        "width": float(np.median([high - low for low, high, _ in kept])) if kept else None,
        "no_width": sum(high <= low for low, high, _ in kept),
        "below_05": float(np.mean(tested)) if tested else None,
    }


def missed(row: Row, edge: bool) -> str | None:
    """Which target a row misses by more than two standard errors of the simulation; null for none. Above HIGH counts
    only away from the edges."""
    if row["covers"] is None:
        return None
    printed = max(row["trials"] * row["printed"], 1)
    if row["covers"] < LOW - 2 * monte_carlo(LOW, printed):
        return "covers too little"
    if row["covers"] > HIGH + 2 * monte_carlo(HIGH, printed) and not edge:
        return "wider than needed"
    return "no width" if row["no_width"] else None


def monte_carlo(share: float, trials: float) -> float:
    """Standard error of a simulated share.

    >>> round(monte_carlo(0.95, 400), 4)
    0.0109
    """
    return float(np.sqrt(share * (1 - share) / trials))

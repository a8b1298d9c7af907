"""The share of simulated intervals that hold the truth, and the targets that are missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LOW, HIGH = 0.92, 0.98
FEW = 5.0  # problems' worth of what a share is short of an edge, where no interval can be both short and safe
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


def near_edge(problems: float, share: float) -> bool:
    """
    >>> near_edge(100, 0.03), near_edge(300, 0.03)
    (True, False)
    """
    return problems * min(share, 1 - share) < FEW


def monte_carlo(share: float, trials: float) -> float:
    """Standard error of a simulated share.

    >>> round(monte_carlo(0.95, 400), 4)
    0.0109
    """
    return float(np.sqrt(share * (1 - share) / trials))


def of_pieces(rows: Sequence[Row]) -> list[Row]:
    """One row of what pieces of a job found: shares and widths weighed by the studies that they are of.

    >>> one = {"job": "a", "piece": 0, "figure": "f", "trials": 30, "printed": 1.0, "no_width": 0, "below_05": None}
    >>> two = one | {"piece": 1, "trials": 10, "printed": 0.5, "covers": 1.0, "width": 0.1}
    >>> found, = of_pieces([one | {"covers": 0.9, "width": 0.3}, two])
    >>> found["trials"], found["printed"], round(found["covers"], 4), round(found["width"], 4)
    (40, 0.875, 0.9143, 0.2714)
    """
    pieces: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        pieces.setdefault(tuple(row.get(name) for name in ("job", "figure", "design", "study")), []).append(row)
    return [_whole(alike) for alike in pieces.values()]


def _whole(rows: Sequence[Row]) -> Row:
    trials_N = [row["trials"] for row in rows]
    printed_N = [row["trials"] * row.get("printed", 1.0) for row in rows]
    whole = rows[0] | {"trials": sum(trials_N)}
    for name in ("printed", "below_05", "found", "promised", "covers", "width"):
        if name in whole:
            whole[name] = _mean([row[name] for row in rows], printed_N if name in ("covers", "width") else trials_N)
    if "no_width" in whole:
        whole["no_width"] = sum(row["no_width"] for row in rows)
    if "families" in whole:
        names = dict.fromkeys(name for row in rows for name in row["families"])
        whole["families"] = {n: _mean([row["families"].get(n, 0.0) for row in rows], trials_N) for n in names}
    return whole


def _mean(value_N: Sequence[float | None], weight_N: Sequence[float]) -> float | None:
    known = [(value, weight) for value, weight in zip(value_N, weight_N, strict=True) if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None

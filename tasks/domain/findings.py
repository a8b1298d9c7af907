"""The answer in three sentences, written from the rows of the report's own queries, intervals and doubts included."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tasks.domain.svg import percent

Ask = Callable[[str], pa.Table]
#: Fewer problems than this are called few.
FEW = 100


def answer(ask: Ask) -> list[str]:
    rows = ask("report_summary").to_pylist()
    bands = {row["arm"]: row for row in rows if row["problems"]}
    counted = [
        f"{row['variance']} under {arm} ({percent(row['variance'] / row['problems'])})" for arm, row in bands.items()
    ]
    total = max((row["problems"] for row in bands.values()), default=0)
    said = [f"Of {total} screened problems, {_listed(counted)} had both correct and wrong rollouts, and so a gradient."]
    climbs = [
        f"{row['arm']} from {percent(row['heldout_before'])} to {percent(row['heldout_after'])}"
        f" ({100 * row['gain']:+.1f} pp{_bounds(row)})"
        for row in rows
        if row["gain"] is not None
    ]
    trained = f"Training moved held-out accuracy of {_listed(climbs)}."
    return [*said, trained if climbs else "Nothing was trained in this run."]


def caveats(ask: Ask) -> list[str]:
    rows = ask("report_summary").to_pylist()
    warned = []
    if len({row["seed"] for row in rows} - {None}) == 1:
        warned.append("One training seed: how much another seed would differ is unknown.")
    return warned


def _bounds(row: dict[str, object]) -> str:
    low, high = row["gain_low"], row["gain_high"]
    if not isinstance(low, float) or not isinstance(high, float):
        return ""
    doubt = ", which contains zero" if low <= 0 <= high else ""
    return f", 95 % interval [{100 * low:+.1f}, {100 * high:+.1f}]{doubt}"


def _listed(parts: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}" if parts else "nothing"

"""How the report's sentences spell numbers, intervals and lists, and when a difference is one of chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.report.tables import minus


def corrected_away(row: Mapping[str, Any]) -> bool:
    """By chance, once all of its family are counted."""
    return row.get("p_adjusted") is not None and row["p_adjusted"] >= 0.05


def interval(low: float | None, high: float | None, scale: float) -> str:
    """Words behind an estimate. scale: 100 for points."""
    if low is None or high is None:
        return ", interval not computed"
    digits = 1 if scale > 1 else 3
    spelt = f"[{signed(scale * low, digits)}, {signed(scale * high, digits)}]"
    return f", 95 % interval {spelt}" + (", which contains zero" if low <= 0 <= high else "")


def signed(value: float, digits: int = 1) -> str:
    """
    >>> signed(-3.75), signed(0.0421, 3)
    ('−3.8', '+0.042')
    """
    return minus(f"{value:+.{digits}f}")


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}" if parts else "nothing"

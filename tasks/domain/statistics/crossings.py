"""Where two pass@k curves cross: the k from which the one that was behind is ahead.

The interval is the set of k at which the gap is not told from 0: where the curves truly cross the gap is 0, so that
this k is in the set as often as the gap's interval there covers 0. Between whole k both ends lie on the line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.domain.statistics.means import Means

Row = dict[str, Any]


def crossing(gap: Means, ks_K: np.ndarray) -> Row:
    """Columns: crosses, estimate, low, high, reason. gap: first policy minus second at every k, ascending.

    crosses: whether the estimated gap changes its sign. low is null where the one that leads at the first k is not told
    to lead there, high where the other is not told to lead at the last k.
    """
    gap_K = gap.estimate_V
    low_K, high_K = gap.interval()
    if len(ks_K) < 2:
        return {"crosses": None, "reason": "one k has nothing to cross at"}
    if not gap.known_V.all():
        at = int(np.flatnonzero(~gap.known_V)[0])
        why = gap.unknown(at, "no problem on which the two differ")
        return {"crosses": None, "reason": f"at k = {ks_K[at]}: {why}"}
    sign = float(np.sign(gap_K[np.flatnonzero(gap_K)[0]])) if gap_K.any() else 0.0
    if sign == 0.0:
        return {"crosses": False, "reason": "the two are alike at every k"}
    after = np.flatnonzero(sign * gap_K < 0)
    open_K = (low_K <= 0) & (high_K >= 0)
    if not len(after):
        return {"crosses": False, "reason": _apart(open_K, ks_K)}
    bound_K = low_K if sign > 0 else high_K  # the end of the interval that reaches 0 first
    far_K = high_K if sign > 0 else low_K
    row: Row = {"crosses": True, "estimate": _root(sign * gap_K, ks_K, after[0])}
    unsure = []
    if sign * bound_K[0] > 0:
        row["low"] = min(_root(sign * bound_K, ks_K, int(np.flatnonzero(sign * bound_K <= 0)[0])), row["estimate"])
    else:
        unsure.append(f"who leads at k = {ks_K[0]} is not told")
    if sign * far_K[-1] < 0:
        last = int(np.flatnonzero(sign * far_K >= 0)[-1])
        row["high"] = max(_root(-sign * far_K[::-1], ks_K[::-1], len(ks_K) - 1 - last), row["estimate"])
    elif sign * bound_K[-1] > 0:
        unsure.append(f"at k = {ks_K[-1]} the one that led leads again: they cross more than once")
    else:
        unsure.append(f"who leads at k = {ks_K[-1]} is not told")
    return row | ({"reason": "; ".join(unsure)} if unsure else {})


def _apart(open_K: np.ndarray, ks_K: np.ndarray) -> str:
    """Why two curves whose estimates do not cross do not, and at which k the data would allow it."""
    said = f"they do not cross up to k = {ks_K[-1]}"
    if not open_K.any():
        return f"{said} and are told apart at every k"
    return f"{said}; not told apart at k = {', '.join(_runs(ks_K[open_K]))}"


def _runs(ks: np.ndarray) -> list[str]:
    """
    >>> _runs(np.array([1, 4, 5, 6]))
    ['1', '4 to 6']
    """
    parts = np.split(ks, np.flatnonzero(np.diff(ks) > 1) + 1)
    return [str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]


def _root(value_K: np.ndarray, ks_K: np.ndarray, at: int) -> float:
    """Where the line from value_K[at − 1] > 0 to value_K[at] ≤ 0 is 0; the first k where there is nothing before it.

    >>> _root(np.array([3.0, 1.0, -1.0]), np.array([1, 2, 4]), 2)
    3.0
    """
    if at == 0 or value_K[at - 1] <= 0:
        return float(ks_K[at])
    before, here = value_K[at - 1], value_K[at]
    return float(ks_K[at - 1] + (ks_K[at] - ks_K[at - 1]) * before / (before - here))

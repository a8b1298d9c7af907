"""Gains of which only the two shares are known: intervals and the range of paired p-values that is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.domain.statistics.paired_tests import family_of_gain, in_families, mcnemar_exact
from tasks.domain.statistics.shares import wilson

Row = dict[str, Any]


def newcombe(x: int, n: int, y: int, m: int) -> tuple[float, float]:
    """Newcombe's hybrid score interval of y/m − x/n, as for independent samples: too wide where the same problems
    were judged twice and mostly alike. Source: Newcombe 1998, method 10.

    >>> [round(v, 4) for v in newcombe(56, 70, 48, 80)]
    [-0.3339, -0.0524]
    """
    a, b = wilson(x, n), wilson(y, m)
    if a is None or b is None:
        raise ValueError("a share of nothing has no interval")
    d = b.estimate - a.estimate
    low = d - ((b.estimate - b.low) ** 2 + (a.high - a.estimate) ** 2) ** 0.5
    high = d + ((b.high - b.estimate) ** 2 + (a.estimate - a.low) ** 2) ** 0.5
    return low, high


def paired_p_range(x: int, y: int, n: int) -> tuple[float | None, float | None]:
    """Smallest and largest exact McNemar p of a change from x to y correct among the same n problems, over all ways
    in which the unpublished outcomes may pair up.

    >>> low, high = paired_p_range(14, 29, 100); round(low, 6), round(high, 4)
    (6.1e-05, 0.0315)
    """
    most_lost = min(x, n - y)
    values = [mcnemar_exact(lost + y - x, lost) for lost in range(max(0, x - y), most_lost + 1)]
    known = [v for v in values if v is not None]
    return (min(known), max(known)) if known else (None, None)


def trajectory_rows(rows: Sequence[Row], arm: str, sizes: Mapping[str, int], trained: Mapping[str, int]) -> list[Row]:
    """Rows of tasks.measures.curves.CURVES. One rollout a problem: Wilson. `gain`: last step minus first,
    whatever step was best; p_value is the largest that any pairing allows."""
    found: list[Row] = []
    total = sum(sizes.values())
    for row in rows:
        shares = {"all": row["heldout_mean"], **row["by_source"]}
        for source, share in shares.items():
            n = total if source == "all" else sizes[source]
            interval = wilson(round(share * n), n)
            assert interval is not None
            found.append(
                {
                    "series": "heldout",
                    "arm": arm,
                    "step": row["batch"],
                    "source": source,
                    "metric": "pass@1",
                    "estimate": share,
                    "low": interval.low,
                    "high": interval.high,
                    "n": n,
                    "rollouts": n,
                    "seeds": 1,
                    "method": "wilson",
                }
            )
    first, last = (min(rows, key=lambda r: r["batch"]), max(rows, key=lambda r: r["batch"]))
    for source in ("all", *sizes):
        n = total if source == "all" else sizes[source]
        x, y = (round(n * (r["heldout_mean"] if source == "all" else r["by_source"][source])) for r in (first, last))
        low, high = newcombe(x, n, y, n)
        smallest, largest = paired_p_range(x, y, n)
        found.append(
            {
                "series": "gain",
                "arm": arm,
                "step": last["batch"],
                "source": source,
                "metric": "pass@1",
                "estimate": (y - x) / n,
                "low": low,
                "high": high,
                "p_value": largest,
                "n": n,
                "rollouts": n,
                "seeds": 1,
                "method": "newcombe; p: largest exact McNemar of any pairing",
                "training_share": 1.0 if source == "all" else trained.get(source, 0) / sum(trained.values()),
                "reason": f"outcomes per problem are not published: McNemar p between {smallest:.2g} and {largest:.2g}"
                if smallest is not None and largest is not None
                else "no change",
            }
        )
    return in_families(found, family_of_gain)

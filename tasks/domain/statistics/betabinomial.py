"""How a pool's difficulty is spread, from counts: a beta-binomial, with points of mass at 0 left out on purpose.

A group of G rollouts that are all wrong may still be a problem that a larger group would learn from. The fit says
how many of those there are, and how many live groups to expect at another group size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from tasks.domain.bands import Band, band


@dataclass(frozen=True, slots=True)
class BetaBinomial:
    """Each problem's chance of a correct rollout is drawn from Beta(a, b)."""

    a: float
    b: float

    def live_share(self, group_size: int) -> float:
        """Expected share of groups with both outcomes at this size: 1 − E[(1−p)^G] − E[p^G].

        >>> round(BetaBinomial(1.0, 1.0).live_share(2), 6)
        0.333333
        """
        return float(1.0 - self._all(self.b, group_size) - self._all(self.a, group_size))

    def _all(self, one: float, group_size: int) -> float:
        i = np.arange(group_size)
        return float(np.exp(np.log((one + i) / (self.a + self.b + i)).sum()))

    def live_given(self, n: int, c: int, group_size: int) -> float:
        """The same for a problem of which c of n rollouts were correct.

        >>> round(BetaBinomial(1.0, 1.0).live_given(8, 0, 2), 6)
        0.163636
        """
        return BetaBinomial(self.a + c, self.b + n - c).live_share(group_size)


def rollouts_until_decided(n: int, c: int) -> float:
    """Expected rollouts until both a correct and a wrong one were seen, of n of which c are correct, drawn in any
    order; n where they never are. Stopping there gives the same band as drawing all n.

    >>> rollouts_until_decided(8, 0), rollouts_until_decided(2, 1), round(rollouts_until_decided(8, 4), 4)
    (8.0, 2.0, 2.6)
    """
    undecided = [1.0] + [(comb(c, t) + comb(n - c, t)) / comb(n, t) for t in range(1, n)]
    return float(sum(undecided))


def adaptive_saving(counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """`adaptive_saving`: rollouts that stopping at a decided band would not have sampled (count, share). Where the
    screening did stop, what it did not sample of the largest group.

    >>> adaptive_saving([(8, 0), (2, 1)])["count"], adaptive_saving([(2, 1), (2, 1)])["count"]
    (6, 0)
    """
    row: dict[str, Any] = {"metric": "adaptive_saving", "n": len(counts)}
    sampled, whole = sum(n for n, _ in counts), len(counts) * max((n for n, _ in counts), default=0)
    if not sampled:
        return row | {"reason": "no problem of this source"}
    if sampled < whole:
        return row | {"count": whole - sampled, "estimate": 1 - sampled / whole, "reason": "measured: screened so"}
    used = sum(rollouts_until_decided(*pair) for pair in counts)
    return row | {"count": round(sampled - used), "estimate": 1 - used / sampled}


def fit(counts: Sequence[tuple[int, int]]) -> BetaBinomial | None:
    """Maximum likelihood over (n, c) pairs; null where the likelihood has no maximum inside (all alike, or n = 1)."""
    from scipy.optimize import minimize
    from scipy.special import betaln

    n_P, c_P = np.array([c[0] for c in counts], np.float64), np.array([c[1] for c in counts], np.float64)
    if len(counts) < 5 or np.all(n_P < 2) or c_P.sum() in (0.0, n_P.sum()):
        return None
    pairs, times = np.unique(np.stack([n_P, c_P]), axis=1, return_counts=True)
    n, c = pairs

    def loss(log_ab: np.ndarray) -> float:
        a, b = np.exp(log_ab)
        return -float((times * (betaln(c + a, n - c + b) - betaln(a, b))).sum())

    starts = [np.log([0.3, 1.0]), np.log([1.0, 1.0]), np.log([3.0, 3.0])]
    best = min((minimize(loss, s, method="L-BFGS-B", bounds=[(-7, 7)] * 2) for s in starts), key=lambda r: r.fun)
    a, b = np.exp(best.x)
    return BetaBinomial(float(a), float(b))


def expectations(counts: Sequence[tuple[int, int]], group_size: int) -> list[dict[str, Any]]:
    """Rows of the cross-tab: what a group size of `group_size` would make of these problems.

    live_unbiased: mean of c(n−c)·2/(n(n−1)), the chance that two rollouts of a problem differ, without any model.
    """
    model, n = fit(counts), len(counts)
    shared = {"n": n}
    if model is None:
        why = "too few problems, groups of one rollout, or all rollouts alike: no beta-binomial can be fitted"
        names = ("expected_live", "live_in_band", "mislabelled")
        return [shared | {"metric": q, "estimate": None, "reason": why} for q in names]
    live_P = {pair: model.live_given(*pair, group_size) for pair in set(counts)}
    banded = [(n, c) for n, c in counts if band(c, n) is Band.VARIANCE]
    dead = [(n, c) for n, c in counts if band(c, n) is not Band.VARIANCE]
    rows = [
        shared | {"metric": "beta_a", "estimate": model.a},
        shared | {"metric": "beta_b", "estimate": model.b},
        shared | {"metric": "expected_live", "estimate": model.live_share(group_size)},
        _mean("live_in_band", Band.VARIANCE, [live_P[p] for p in banded]),
        _mean("mislabelled", None, [live_P[p] for p in dead]),
    ]
    for name in (Band.ALL_ZERO, Band.ALL_ONE):
        rows.append(_mean("mislabelled", name, [live_P[p] for p in dead if band(p[1], p[0]) is name]))
    return rows


def _mean(metric: str, band: str | None, values: list[float]) -> dict[str, Any]:
    """count: problems expected to be live at the training group size; estimate: their share."""
    if not values:
        return {"metric": metric, "band": band, "n": 0, "reason": "no problem in this band"}
    return {
        "metric": metric,
        "band": band,
        "count": round(sum(values)),
        "n": len(values),
        "estimate": float(np.mean(values)),
    }

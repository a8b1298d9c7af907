"""Tests of paired categories: do two arms put the same problems into the same bands?"""

from __future__ import annotations

from typing import Any

import numpy as np

from storage.bands import Band
from tasks.domain.statistics.intervals import clopper_pearson


def mcnemar_exact(only_first: int, only_second: int) -> float | None:
    """Two-sided exact McNemar: a binomial test of the discordant problems. Null if there is none.

    >>> mcnemar_exact(3, 3), round(mcnemar_exact(5, 0), 4), mcnemar_exact(0, 0) is None
    (1.0, 0.0625, True)
    """
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return None if discordant == 0 else float(binomtest(only_first, discordant, 0.5).pvalue)


def weighted_kappa(table: list[list[int]]) -> float | None:
    """Cohen's kappa with linear weights over ordered bands; null where chance alone would agree perfectly.

    >>> weighted_kappa([[2, 0], [0, 2]])
    1.0
    """
    t = np.asarray(table, np.float64)
    size = len(t)
    away = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    expected = np.outer(t.sum(axis=1), t.sum(axis=0)) / t.sum()
    by_chance = float((away * expected).sum())
    return None if by_chance == 0 else 1.0 - float((away * t).sum()) / by_chance


def _odds(only_first: int, only_second: int) -> dict[str, float]:
    """low and high of the odds of two counts, from Clopper-Pearson's of the share; no high where it has none."""
    share = clopper_pearson(only_first, only_first + only_second)
    if share is None or not only_second:
        return {}
    return {"low": share.low / (1 - share.low)} | ({"high": share.high / (1 - share.high)} if share.high < 1 else {})


def band_tests(table: list[list[int]]) -> list[dict[str, Any]]:
    """McNemar (variance band or not), Stuart-Maxwell (same margins), Bowker (symmetry), weighted kappa.

    estimate: the statistic; for McNemar the odds of the discordant problems with their exact interval, null if one side
    has none.
    """
    from scipy.stats import chi2
    from statsmodels.stats.contingency_tables import SquareTable

    t = np.asarray(table)
    only_first, only_second = int(t[1].sum() - t[1, 1]), int(t[:, 1].sum() - t[1, 1])
    rows: list[dict[str, Any]] = [
        {
            "metric": "mcnemar",
            "band": Band.VARIANCE,
            "count": only_first + only_second,
            "estimate": only_first / only_second if only_second else None,
            "p_value": mcnemar_exact(only_first, only_second),
            "reason": None if only_first + only_second else "no problem is in one variance band alone",
        }
        | _odds(only_first, only_second)
    ]
    used = [i for i in range(len(t)) if t[i].sum() + t[:, i].sum() > 0]
    square = t[np.ix_(used, used)]
    if len(used) < 2 or np.array_equal(square, np.diag(np.diag(square))):
        why = "the two arms band every problem alike"
        rows += [{"metric": q, "reason": why} for q in ("stuart_maxwell", "bowker")]
    else:
        tests: Any = SquareTable(square, shift_zeros=False)
        for name, result in (("stuart_maxwell", tests.homogeneity()), ("bowker", tests.symmetry())):
            value = float(result.statistic)
            p = float(chi2.sf(value, result.df))  # statsmodels takes 1 - cdf, which is 0.0 below 1e-16
            whole = np.isfinite(value) and np.isfinite(p)
            rows.append(
                {
                    "metric": name,
                    "estimate": value if whole else None,
                    "p_value": p if whole else None,
                    "reason": None if whole else "empty cells leave the statistic undefined",
                }
            )
    kappa = weighted_kappa(table)
    rows.append(
        {
            "metric": "weighted_kappa",
            "estimate": kappa,
            "reason": None if kappa is not None else "all problems are in one band",
        }
    )
    return rows

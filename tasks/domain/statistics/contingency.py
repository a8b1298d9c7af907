"""Tests of paired categories: do two arms put the same problems into the same bands?"""

from __future__ import annotations

from typing import Any

import numpy as np

from storage.bands import Band
from tasks.domain.statistics.intervals import clopper_pearson
from tasks.domain.statistics.means import ONE_PROBLEM, folded, ratio
from tasks.domain.statistics.sign_flips import FLIPS, sign_flip

Row = dict[str, Any]
LIVE = list(Band).index(Band.VARIANCE)
NO_ODDS = "no problem is in the second's variance band alone: no odds"
BOTH_WAYS = "what moved, moved both ways within every cluster of near-duplicates"


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


def band_tests(first_P: np.ndarray, second_P: np.ndarray, cluster_P: np.ndarray) -> list[Row]:
    """McNemar (variance band or not), Stuart-Maxwell (same margins), Bowker (symmetry), weighted kappa of two arms'
    bands, by their place in Band. estimate: the statistic; for McNemar the odds of the discordant problems with their
    interval, null if one side has none.

    Near-duplicate problems are one: what they add to a difference is summed by cluster_P, also in its covariance, and p
    is the chance of a statistic as large if the arms changed places in any cluster (sign flips). Where no problem has a
    near-duplicate, the covariance is the tests' own, and p is exact (McNemar) or that of chi square.
    """
    size = len(Band)
    table = np.zeros((size, size), int)
    np.add.at(table, (first_P, second_P), 1)
    alone = len(np.unique(cluster_P)) == len(cluster_P)
    one_PK, other_PK = (np.eye(size)[places] for places in (first_P, second_P))
    cells_PKK = one_PK[:, :, None] * other_PK[:, None, :]
    upper = np.triu_indices(size, 1)
    moved = {"stuart_maxwell": one_PK - other_PK, "bowker": (cells_PKK - cells_PKK.transpose(0, 2, 1))[:, *upper]}
    rows = [_mcnemar(first_P == LIVE, second_P == LIVE, cluster_P, alone)]
    for name, moved_PV in moved.items():
        if np.array_equal(first_P, second_P):
            rows.append({"metric": name, "reason": "the two arms band every problem alike"})
            continue
        rows.append({"metric": name} | _tested(_by_cluster(moved_PV, cluster_P), alone))
    kappa = weighted_kappa(table.tolist())
    why = None if kappa is not None else "all problems are in one band"
    return [*rows, {"metric": "weighted_kappa", "estimate": kappa, "reason": why}]


def _mcnemar(live_P: np.ndarray, other_P: np.ndarray, cluster_P: np.ndarray, alone: bool) -> Row:
    only_P2 = np.column_stack([live_P & ~other_P, other_P & ~live_P]) * 1.0
    first, second = (int(v) for v in only_P2.sum(axis=0))
    row: Row = {"metric": "mcnemar", "band": Band.VARIANCE, "count": first + second}
    if not first + second:
        return row | {"reason": "no problem is in one variance band alone"}
    row |= {"estimate": first / second} if second else {"reason": NO_ODDS}
    if alone:
        return row | {"p_value": mcnemar_exact(first, second)} | _odds(first, second)
    tested = _tested(_by_cluster(only_P2 @ np.array([[1.0], [-1.0]]), cluster_P), alone)
    row |= {name: said for name, said in tested.items() if name != "estimate"}
    if not first:
        row |= {"reason": "no problem is in the first's variance band alone: no interval"}
    if first and second:
        only_C2 = folded(only_P2[None], cluster_P)[0]
        _, low, high = ratio(only_C2[None, :, 0], only_C2[None, :, 1], trained=False)
        row |= {"low": low, "high": high} if np.isfinite(low) else {"reason": row.get("reason", ONE_PROBLEM)}
    return row


def _odds(only_first: int, only_second: int) -> dict[str, float]:
    """low and high of the odds of two counts, from Clopper-Pearson's of the share; no high where it has none."""
    share = clopper_pearson(only_first, only_first + only_second)
    if share is None or not only_second:
        return {}
    return {"low": share.low / (1 - share.low)} | ({"high": share.high / (1 - share.high)} if share.high < 1 else {})


def _by_cluster(moved_PV: np.ndarray, cluster_P: np.ndarray) -> np.ndarray:
    found, at_P = np.unique(cluster_P, return_inverse=True)
    moved_CV = np.zeros((len(found), moved_PV.shape[1]))
    np.add.at(moved_CV, at_P, moved_PV)
    return moved_CV[moved_CV.any(axis=1)]


def _tested(moved_CV: np.ndarray, alone: bool) -> Row:
    """The statistic and p of the sum of what moved, measured by its covariance where the arms are alike, Σ_c d_c d_cᵀ:
    flips of sign leave that as it is. A direction in which nothing moved is left out; the reason if that is each."""
    from scipy.stats import chi2

    if not len(moved_CV):
        return {"reason": BOTH_WAYS}
    weight_V, axes_VV = np.linalg.eigh(moved_CV.T @ moved_CV)
    kept = weight_V > 1e-9 * max(weight_V.max(initial=0.0), 1.0)
    scaled_CV = moved_CV @ axes_VV[:, kept] / np.sqrt(weight_V[kept])
    statistic = float((scaled_CV.sum(axis=0) ** 2).sum())
    if alone:
        return {"estimate": statistic, "p_value": float(chi2.sf(statistic, int(kept.sum())))}
    return {"estimate": statistic, "p_value": sign_flip(scaled_CV, draws=FLIPS, seed=0)}

"""Regression slopes and rank correlations over problems, with several arms per problem and several training seeds.

Axes: S seeds, N rows of (problem, arm).
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from storage.estimates import LEVEL
from tasks.domain.statistics.means import ONE_PROBLEM, Spread, uneven

Row = dict[str, Any]
MIXED, CLUSTERED = "mixed model, problems random", "least squares, robust to problems alike"


def slope(outcome_SN: np.ndarray, fixed: Sequence[np.ndarray], group_N: np.ndarray) -> Row:
    """Return the slope of the outcome (averaged over seeds) on the first column of `fixed`, or a reason for none.

    The other columns and an intercept are held fixed. Each group (a problem, or its near-duplicates) has a random
    intercept, estimated by restricted maximum likelihood. If this estimate has no solution, or every group has one row,
    use least squares with errors clustered by group. The variance of the slope between seeds is added, as far as it
    exceeds their residual variance. Intervals use Student's t.

    >>> x = np.arange(8.0); one = slope(2 * x[None] + np.tile([0.1, -0.1, -0.1, 0.1], 2), [x], np.arange(8) // 2)
    >>> round(one["estimate"], 1), one["low"] < 2 < one["high"]
    (2.0, True)
    """
    from statsmodels.regression.linear_model import OLS

    design_ND = np.column_stack([*fixed, np.ones(outcome_SN.shape[1])])
    groups, free = len(np.unique(group_N)), len(np.unique(group_N)) - design_ND.shape[1]
    if np.linalg.matrix_rank(design_ND) < design_ND.shape[1] or free < 1:
        return {"reason": "what is held fixed leaves nothing of it to vary"}
    if uneven(group_N):
        return {"reason": ONE_PROBLEM}
    mean_N = outcome_SN.mean(axis=0)
    if float(mean_N.var()) < 1e-18:
        return {"reason": "the outcome is the same everywhere"}
    found, method = (_mixed(mean_N, design_ND, group_N) if groups < len(group_N) else None), MIXED
    if found is None:
        fitted: Any = OLS(mean_N, design_ND).fit(**robust(group_N))
        found, method = (float(fitted.params[0]), float(fitted.bse[0]) ** 2), CLUSTERED
    at, variance = found
    added, seeds_df = _over_seeds(outcome_SN, design_ND)
    spread = Spread(*(np.array([v]) for v in (variance, float(free), added, seeds_df)))
    half, p_value = float(spread.half((1 - LEVEL) / 2)[0]), float(2 * spread.beyond(np.array([abs(at)]))[0])
    return {"estimate": at, "low": at - half, "high": at + half, "p_value": min(p_value, 1.0), "method": method}


def _mixed(outcome_N: np.ndarray, design_ND: np.ndarray, group_N: np.ndarray) -> tuple[float, float] | None:
    """Return (slope, its variance); None without a solution. The variance of groups is computed here and passed to
    statsmodels, whose own search takes hundreds of times as long if that variance is near 0."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    scale = float(outcome_N.std())
    between = max(between_groups(outcome_N, design_ND, group_N), 1e-9)  # at 0 there is no derivative
    start = np.array([np.sqrt(between)])  # MixedLM's form of the covariance of one random effect
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the skipped search, and of a variance at its bound
        try:
            model = MixedLM(outcome_N / scale, design_ND, groups=group_N)
            found: Any = model.fit(reml=True, start_params=start, method="bfgs", maxiter=0)
            at, error = float(found.fe_params[0]) * scale, float(found.bse_fe[0]) * scale
        except (np.linalg.LinAlgError, ValueError):
            return None
    return (at, error**2) if np.isfinite(error) and error > 0 else None


def between_groups(outcome_N: np.ndarray, design_ND: np.ndarray, group_N: np.ndarray) -> float:
    """Return λ, the ratio of the variance of random intercepts to the residual variance, by restricted maximum
    likelihood. The likelihood has this one parameter, and depends on sums over groups of one size m: (V⁻¹)_g = 1 −
    λ/(1 + λm) · J. Source: Lindstrom and Bates 1988."""
    from scipy.optimize import minimize_scalar

    both_ND = np.column_stack([design_ND, outcome_N])
    _, at_N, size_G = np.unique(group_N, return_inverse=True, return_counts=True)
    sums_GD = np.zeros((len(size_G), both_ND.shape[1]))
    np.add.at(sums_GD, at_N, both_ND)
    sizes = np.unique(size_G)
    times = np.array([(size_G == m).sum() for m in sizes])
    of_size = np.stack([sums_GD[size_G == m].T @ sums_GD[size_G == m] for m in sizes])
    whole, freedom = both_ND.T @ both_ND, design_ND.shape[0] - design_ND.shape[1]

    def loss(share: float) -> float:
        ratio = share / (1 - share)
        left = whole - np.tensordot(ratio / (1 + ratio * sizes), of_size, 1)
        fixed, cross = left[:-1, :-1], left[:-1, -1]
        rest = max(float(left[-1, -1] - cross @ np.linalg.solve(fixed, cross)), 1e-300)
        return float(freedom * np.log(rest) + times @ np.log1p(ratio * sizes) + np.linalg.slogdet(fixed)[1])

    found: Any = minimize_scalar(loss, bounds=(0.0, 1 - 1e-6), method="bounded", options={"xatol": 1e-9})
    share = float(found.x) if found.fun < loss(0.0) else 0.0
    return share / (1 - share)


def robust(group_N: np.ndarray) -> dict[str, Any]:
    """Return the arguments of statsmodels for errors clustered by group, or HC3 if each row is its own group."""
    alone = len(np.unique(group_N)) == len(group_N)
    return {"cov_type": "HC3"} if alone else {"cov_type": "cluster", "cov_kwds": {"groups": group_N}}


def _over_seeds(outcome_SN: np.ndarray, design_ND: np.ndarray) -> tuple[float, float]:
    """Return (the variance that seeds add to the variance of the slope, its degrees of freedom)."""
    seeds, rows = outcome_SN.shape
    if seeds < 2:
        return 0.0, 1.0
    slope_N = np.linalg.pinv(design_ND)[0]
    rest_SN = outcome_SN - outcome_SN.mean(axis=0)
    rest_SN = rest_SN - rest_SN.mean(axis=1, keepdims=True)
    noise = float((rest_SN**2).sum()) / ((seeds - 1) * max(rows - 1, 1)) * float(slope_N @ slope_N)
    return max(float((outcome_SN @ slope_N).var(ddof=1)) - noise, 0.0) / seeds, seeds - 1.0


# ---- Spearman's rank correlation over problems, with its interval. Axes: P problems, C clusters of problems.
#
# The interval is Student's t with a jackknife of Fisher's z over clusters of near-duplicates (coverage:
# docs/coverage.md). More than MOST clusters are combined into MOST groups (delete-a-group jackknife: Kott 2001).

LEAST, MOST = 5, 1000
#: The largest number of matrix elements in memory at once.
HELD = 250_000
#: Values are equal if they agree to this many digits, because sums in another order differ by rounding.
DIGITS = 12
FEW = f"fewer than {LEAST} problems"
ALIKE = "every problem is alike in one of the two"
UNEVEN = "a few large clusters of near-duplicates hold most problems: no interval"
ONE_ORDER = "both order the problems the same way, or the reverse: no interval"


def rank_correlations(
    several: Sequence[np.ndarray], pairs: Sequence[tuple[int, int]], cluster_P: np.ndarray
) -> list[Row]:
    """Return a row for each pair of values: their correlation with its interval, or a reason for none.

    >>> x = np.arange(8.0)
    >>> (found,) = rank_correlations([x, np.array([1.0, 0, 2, 4, 3, 5, 7, 6])], [(0, 1)], x)
    >>> [round(found[end], 2) for end in ("estimate", "low", "high")]
    [0.93, 0.79, 0.98]
    """
    clusters, at_P = np.unique(cluster_P, return_inverse=True)
    if len(clusters) < LEAST:
        return [{"reason": FEW}] * len(pairs)
    uneven_clusters = len(clusters) < len(at_P) and uneven(at_P)
    at_P = at_P % MOST
    n = int(at_P.max()) + 1
    needed = sorted({one for pair in pairs for one in pair})
    level_P = {one: np.unique(several[one].round(DIGITS), return_inverse=True)[1] for one in needed}
    rhos = _without(np.array([n]), at_P, level_P, pairs)[:, 0]
    without_C: dict[tuple[int, int], np.ndarray] = {}
    if sure := [pair for pair, rho in zip(pairs, rhos, strict=True) if np.isfinite(rho) and not uneven_clusters]:
        chunks = np.array_split(np.arange(n), -(-n * len(at_P) // HELD))
        parts = [_without(chunk, at_P, level_P, sure) for chunk in chunks]
        without_C = dict(zip(sure, np.hstack(parts), strict=True))
    return [_jackknifed(float(rho), without_C.get(pair)) for pair, rho in zip(pairs, rhos, strict=True)]


def _jackknifed(rho: float, without_C: np.ndarray | None) -> Row:
    """Return the row of a correlation. without_C: correlations without each cluster; None for uneven clusters."""
    from scipy.special import stdtrit

    if not np.isfinite(rho):
        return {"reason": ALIKE}
    if without_C is None or not np.isfinite(without_C).all():
        return {"estimate": rho, "reason": UNEVEN if without_C is None else ALIKE}
    n = len(without_C)
    if max(abs(rho), np.abs(without_C).max()) > 1 - 1e-9:
        return {"estimate": rho, "reason": ONE_ORDER}
    error = float(np.sqrt((n - 1) * np.arctanh(without_C).var()))
    if error < 1e-12:
        return {"estimate": rho, "reason": ONE_ORDER}
    half = float(stdtrit(n - 1, (1 - LEVEL) / 2)) * error
    low, high = np.tanh(np.arctanh(rho) + half * np.array([1, -1])).tolist()
    return {"estimate": rho, "low": low, "high": high}


def _without(
    left_C: np.ndarray, at_P: np.ndarray, level_P: Mapping[int, np.ndarray], pairs: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Return one correlation_C per pair, each without one group of problems; NaN if either side is constant. level_P:
    index of each value among the distinct values."""
    kept_CP = left_C[:, None] != at_P
    away = {}
    for one, of_P in level_P.items():
        rank_CP = _ranks(of_P, ~kept_CP)
        mean_C1 = rank_CP.mean(axis=1, keepdims=True, where=kept_CP)
        away[one] = np.where(kept_CP, rank_CP - mean_C1, 0.0)
    size_C = {one: (away_CP**2).sum(axis=1) for one, away_CP in away.items()}
    found = []
    for one, other in pairs:
        both_C = np.sqrt(size_C[one] * size_C[other])
        found.append((away[one] * away[other]).sum(axis=1) / np.where(both_C > 1e-9, both_C, np.nan))
    return np.array(found)


def _ranks(level_P: np.ndarray, out_CP: np.ndarray) -> np.ndarray:
    """Return the mid-ranks of P problems in C copies, shape (C, P). A copy leaves out the problems in its row of
    out_CP, whose own ranks mean nothing.

    >>> _ranks(np.array([1, 0, 1]), np.array([[False, False, False], [False, True, False]]))[:, [0, 2]].tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    levels = int(level_P.max()) + 1
    count_CL = np.tile(np.bincount(level_P, minlength=levels), (len(out_CP), 1))
    row_N, place_N = np.nonzero(out_CP)
    np.subtract.at(count_CL, (row_N, level_P[place_N]), 1)
    return (np.cumsum(count_CL, axis=1) - 0.5 * count_CL)[:, level_P]

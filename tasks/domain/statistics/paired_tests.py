"""Paired comparisons per problem, in one place: t, sign flips, ranks, effect sizes, corrections.

The unit is the problem. A p-value never stands alone: it comes with an effect size, an interval and its family's
correction. t means the t-distribution. Where scipy or statsmodels have it, they compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.resampling import LEVEL
from tasks.domain.statistics.intervals import percentile, resample_means
from tasks.domain.statistics.mixed import robust
from tasks.domain.statistics.sign_flips import sign_flip, wilcoxon


@dataclass(frozen=True, slots=True)
class Paired:
    """First minus second over n problems. Null where n is too small or no difference varies, with the reason.

    t, p_t: paired t-test, n − 1 degrees of freedom; p_normal: the same statistic under the normal distribution, to
    set beside publications that used it; p_flip: sign-flip permutation; p_wilcoxon: signed ranks;
    d_z: mean over standard deviation of the differences; d_z_corrected: Hedges' small-sample correction of it;
    low, high: t-interval; boot_low, boot_high: percentile bootstrap over problems.
    """

    n: int
    mean_first: float | None = None
    mean_second: float | None = None
    difference: float | None = None
    relative: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    boot_low: float | None = None
    boot_high: float | None = None
    t: float | None = None
    p_t: float | None = None
    p_normal: float | None = None
    p_flip: float | None = None
    p_wilcoxon: float | None = None
    d_z: float | None = None
    d_z_corrected: float | None = None
    reason: str | None = None


def paired(first_P: np.ndarray, second_P: np.ndarray, *, draws: int, seed: int) -> Paired:
    """Compare two policies on the same problems, in the same order.

    >>> r = paired(np.array([1.0, 2, 4]), np.array([0.0, 0, 1]), draws=100, seed=0)
    >>> r.n, r.difference, round(r.t, 4), round(r.p_t, 4), r.p_flip
    (3, 2.0, 3.4641, 0.0742, 0.25)
    """
    from scipy import stats

    first_P, second_P = np.asarray(first_P, np.float64), np.asarray(second_P, np.float64)
    d_P = first_P - second_P
    n = len(d_P)
    if n == 0:
        return Paired(0, reason="no problem in common")
    mean, base = float(d_P.mean()), float(second_P.mean())
    shared = {
        "mean_first": float(first_P.mean()),
        "mean_second": base,
        "difference": mean,
        "relative": mean / base if base else None,
    }
    if n == 1:
        return Paired(1, **shared, reason="one problem has no spread")
    boot = percentile(mean, resample_means(d_P[:, None], draws, seed)[:, 0])
    sd = float(d_P.std(ddof=1))
    if sd <= 1e-15 * max(1.0, abs(mean)):
        return Paired(n, **shared, sd=0.0, reason="every problem differs by the same amount: no interval")
    error = sd / np.sqrt(n)
    t, half = mean / error, float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error
    d_z = mean / sd
    return Paired(
        n,
        **shared,
        sd=sd,
        low=mean - half,
        high=mean + half,
        boot_low=boot.low,
        boot_high=boot.high,
        t=float(t),
        p_t=float(2 * stats.t.sf(abs(t), n - 1)),
        p_normal=float(2 * stats.norm.sf(abs(t))),
        p_flip=sign_flip(d_P, draws=draws, seed=seed),
        p_wilcoxon=wilcoxon(d_P),
        d_z=float(d_z),
        d_z_corrected=float(d_z * (1 - 3 / (4 * (n - 1) - 1))) if n > 2 else None,
    )


def adjust(p_values: Sequence[float | None], method: str) -> list[float | None]:
    """p-values corrected over one declared family: `holm` (confirmatory) or `bh` (exploratory). Nulls stay null and
    do not count.

    >>> adjust([0.01, None, 0.04], "holm")
    [0.02, None, 0.04]
    >>> adjust([0.01, 0.04], "bh")
    [0.02, 0.04]
    """
    from statsmodels.stats.multitest import multipletests

    known = [i for i, p in enumerate(p_values) if p is not None]
    out: list[float | None] = [None] * len(p_values)
    if known:
        raw = [p for p in p_values if p is not None]
        fixed: Any = multipletests(raw, method={"holm": "holm", "bh": "fdr_bh"}[method])[1]
        for i, p in zip(known, fixed, strict=True):
            out[i] = float(p)
    return out


Left = tuple[float, float, float, float]  # estimate, low, high, p
#: So large a share of the problems, and no fewer than so many, must lie on either side of equal lengths.
SUPPORT, FEWEST = 0.1, 5


def unsupported(longer_P: np.ndarray) -> str | None:
    """Why a difference at equal lengths would be extrapolated, from the log length ratios; null where it is not."""
    needed = max(FEWEST, SUPPORT * len(longer_P))
    fewer = min(int((longer_P <= 0).sum()), int((longer_P >= 0).sum()))
    if fewer >= needed:
        return None
    return (
        f"not adjusted: lengths are hardly ever equal (log ratio from {longer_P.min():+.2f} to {longer_P.max():+.2f},"
        f" {fewer} of {len(longer_P)} problems on one side of 0): compare windows of equal length"
    )


def explained_difference(
    d_P: np.ndarray,
    longer_P: np.ndarray,
    better_P: np.ndarray,
    cluster_P: np.ndarray,
    more: float = 0.0,
    freedom: float = np.inf,
) -> Left | str:
    """(intercept, low, high, p): the difference left where neither log length nor accuracy differs, by least squares
    on the log length ratio, its square and the difference in accuracy, with errors that hold for near-duplicates. more:
    variance that seeds add, and its degrees of freedom. Or why there is none: fewer than three clusters of problems per
    coefficient, or covariates that explain each other."""
    import statsmodels.api as sm
    from scipy import stats

    covariates_PC = np.column_stack([longer_P, longer_P**2, better_P])
    covariates_PC = covariates_PC[:, np.ptp(covariates_PC, axis=0) > 1e-9]  # of filled windows lengths are alike
    n, c = len(np.unique(cluster_P)), covariates_PC.shape[1]
    if n < 3 * (c + 1):
        return f"not adjusted: {n} problems are too few for {c + 1} coefficients"
    design_PC = sm.add_constant(covariates_PC, has_constant="add")
    if np.linalg.matrix_rank(design_PC) < design_PC.shape[1]:
        return "not adjusted: length and accuracy differ alike, and neither can be held fixed"
    result = sm.OLS(d_P, design_PC).fit(**robust(cluster_P), use_t=True)
    at, error = float(result.params[0]), float(np.hypot(result.bse[0], np.sqrt(more)))
    df = min(n - c - 1, freedom)
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * error
    found = (at, at - half, at + half, float(2 * stats.t.sf(abs(at) / error, df)) if error > 0 else np.nan)
    return found if np.all(np.isfinite(found)) else "not adjusted: covariates that do not vary"


def unblurred(left: Left, d_P: np.ndarray, longer_P: np.ndarray, better_P: np.ndarray, noise: float) -> Left | str:
    """What is left at equal accuracy, with ends that hold though accuracy is known from few rollouts; or why there are
    none. noise: the variance that these give a problem's difference in accuracy.

    Noise flattens the slope on accuracy, so that part of what accuracy explains is left in the difference; unless the
    same rollouts make a problem's diversity, where it does not. So the interval is that of both: as fitted, and with
    the slope freed of noise (errors in variables, Fuller 1987).
    """
    from scipy import stats

    at, low, high, p = left
    lengths_P3 = np.column_stack([np.ones(len(d_P)), longer_P, longer_P**2])
    mean_3 = np.linalg.lstsq(lengths_P3, better_P, rcond=None)[0]
    rest_P, freedom = better_P - lengths_P3 @ mean_3, len(d_P) - 4
    squares = float(rest_P @ rest_P)
    if not noise or squares < 1e-18:
        return left
    true = squares / (freedom + 1) - noise
    if true < noise:
        return "not adjusted: accuracy is known from too few rollouts to be held equal"
    slope = float(rest_P @ d_P) / squares
    away_P = d_P - lengths_P3 @ np.linalg.lstsq(lengths_P3, d_P, rcond=None)[0] - slope * rest_P
    error = np.sqrt(float(away_P @ away_P) / freedom / squares)
    shift = float(mean_3[0]) * noise / true
    t = float(stats.t.ppf((1 + LEVEL) / 2, freedom))
    half = np.hypot((high - low) / 2, t * error * shift)
    moved = at - slope * shift
    p_moved = float(2 * stats.t.sf(abs(moved) / half * t, freedom)) if at * moved > 0 else 1.0
    return at, min(low, moved - half), max(high, moved + half), max(p, p_moved)

"""Paired comparisons over problems: t, sign flips, ranks, effect sizes and corrections for multiple tests.

The unit of observation is the problem. Every p-value comes with an effect size, an interval, and a p-value that is
corrected within a family of tests.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from storage.estimates import LEVEL, Band
from tasks.domain.statistics.means import ONE_PROBLEM, folded, ratio
from tasks.domain.statistics.regression import robust
from tasks.domain.statistics.shares import share_interval

Row = dict[str, Any]

# ---- sign-flip tests: if two policies are equal, both signs of a problem's difference are equally likely
# Axes: P problems or clusters of near-duplicates, V columns.

FLIPS = 10_000
EXACT_FLIPS = 20  # up to this many values, all 2^n sign patterns are tried
EXACT_RANKS = 13  # as in scipy; with ties each test takes half a second there
ROUNDING = 1e-9  # values that differ by less than this share of the largest difference are equal


def sign_flip(d_P: np.ndarray, *, draws: int, seed: int) -> float:
    """Return the two-sided p of the mean under random signs. For vectors d_PV, test the length of their mean.

    For at most 20 nonzero values, p is exact over all sign patterns. For more it comes from the observed pattern and
    `draws` random ones, so it is never 0.

    >>> sign_flip(np.array([1.0, 1.0, 1.0]), draws=10, seed=0)
    0.25
    """

    def reaches(sums: np.ndarray) -> np.ndarray:
        return np.abs(np.hypot.reduce(sums, axis=-1)) >= observed - slack

    d_PV = np.asarray(d_P, np.float64).reshape(len(d_P), -1)
    d_PV = d_PV[d_PV.any(axis=1)]  # a flip does not change a zero; without zeros more cases are exact
    observed, n = np.abs(np.hypot.reduce(d_PV.sum(axis=0))), len(d_PV)
    slack = 1e-12 * np.abs(d_PV).sum()
    if n <= EXACT_FLIPS:
        sums = np.zeros((1, d_PV.shape[1]))
        for value in d_PV[1:]:  # the first sign is fixed, because the mirrored half gives the same lengths
            sums = np.concatenate([sums + value, sums - value])
        return float(reaches(sums + d_PV[0]).mean()) if n else 1.0
    rng, extreme = np.random.default_rng(seed), 0
    chunk = max(1, (1 << 22) // n)
    for start in range(0, draws, chunk):
        signs = rng.integers(0, 2, size=(min(chunk, draws - start), n), dtype=np.int8) * 2.0 - 1.0
        extreme += int(reaches(signs @ d_PV).sum())
    return (extreme + 1) / (draws + 1)


def wilcoxon(d_P: np.ndarray, cluster_P: np.ndarray | None = None) -> float | None:
    """Return the two-sided signed-rank p, without zeros; None if nothing is left. Values equal up to rounding tie.

    A small sample gets the sign-flip test of its signed ranks, which is exact with ties. With near-duplicates (problems
    of one cluster), the signs of the clusters' sums are flipped.

    >>> wilcoxon(np.array([1.0, 2, 3])), wilcoxon(np.array([0.0])) is None
    (0.25, True)
    """
    from scipy import stats

    level_P = np.sign(d_P) * _levels(np.abs(d_P))
    nonzero = level_P[level_P != 0]
    if len(nonzero) == 0:
        return None
    ranks = np.sign(nonzero) * stats.rankdata(np.abs(nonzero))
    if cluster_P is not None and len(np.unique(cluster_P)) < len(cluster_P):
        at_P = np.unique(cluster_P[level_P != 0], return_inverse=True)[1]
        return sign_flip(np.bincount(at_P, weights=ranks), draws=FLIPS, seed=0)
    if len(nonzero) <= EXACT_RANKS:
        return sign_flip(ranks, draws=0, seed=0)
    result: Any = stats.wilcoxon(nonzero, method="auto")
    return float(result.pvalue)


def _levels(size_P: np.ndarray) -> np.ndarray:
    """Return the index of each size among the distinct sizes. A size of 0 gets index 0.

    >>> _levels(np.array([0.1, 0.3 - 0.2, 0.5, 0.1 + 0.2 - 0.3])).tolist()
    [1, 1, 2, 0]
    """
    order_P = np.argsort(size_P, kind="stable")
    steps_P = np.diff(size_P[order_P], prepend=0.0) > ROUNDING * size_P.max(initial=0.0)
    level_P = np.empty(len(size_P), np.int64)
    level_P[order_P] = np.cumsum(steps_P)
    return level_P


def paired(first_P: np.ndarray, second_P: np.ndarray) -> Row:
    """Compare two policies on the same problems, in the same order: first minus second.

    t, p_t: paired t-test with n − 1 degrees of freedom. p_normal: the same statistic under the normal distribution, for
    comparison with publications. d_z: mean of the differences divided by their standard deviation; d_z_corrected: with
    Hedges' small-sample correction. A reason replaces the test if n is too small or all differences are equal.

    >>> r = paired(np.array([1.0, 2, 4]), np.array([0.0, 0, 1]))
    >>> r["n"], r["difference"], round(r["t"], 4), round(r["p_t"], 4)
    (3, 2.0, 3.4641, 0.0742)
    """
    from scipy import stats

    d_P, n = np.asarray(first_P, np.float64) - second_P, len(first_P)
    if n == 0:
        return {"n": 0, "reason": "no problem in common"}
    mean, base = float(d_P.mean()), float(np.mean(second_P))
    row = {"n": n, "mean_first": float(np.mean(first_P)), "mean_second": base, "difference": mean}
    row |= {"relative": mean / base} if base else {}
    if n == 1:
        return row | {"reason": "one problem has no spread"}
    sd = float(d_P.std(ddof=1))
    if sd <= 1e-15 * max(1.0, abs(mean)):
        return row | {"reason": "every problem differs by the same amount: no interval"}
    t, d_z = mean / (sd / np.sqrt(n)), mean / sd
    row |= {"t": float(t), "p_t": float(2 * stats.t.sf(abs(t), n - 1)), "p_normal": float(2 * stats.norm.sf(abs(t)))}
    return row | {"d_z": d_z, "d_z_corrected": d_z * (1 - 3 / (4 * (n - 1) - 1)) if n > 2 else None}


def adjust(p_values: Sequence[float | None], method: str) -> list[float | None]:
    """Correct the p-values of one family: `holm` (confirmatory) or `bh` (exploratory). A p-value of None stays None.

    >>> adjust([0.01, None, 0.04], "holm"), adjust([0.01, 0.04], "bh")
    ([0.02, None, 0.04], [0.02, 0.04])
    """
    from statsmodels.stats.multitest import multipletests

    known = [p for p in p_values if p is not None]
    corrected: Any = multipletests(known, method={"holm": "holm", "bh": "fdr_bh"}[method])[1] if known else ()
    fixed = iter(corrected)
    return [None if p is None else float(next(fixed)) for p in p_values]


def levels_of_tests(p_values: Sequence[float], method: str, alpha: float = 1 - LEVEL) -> list[float]:
    """Return the level at which the correction of a family tests each of its p-values. An interval of this level
    excludes 0 if and only if the corrected p-value is below alpha.

    With R rejected of m hypotheses, Holm tests the hypothesis of rank r (from 0) at alpha/(m − min(r, R)), and
    Benjamini-Hochberg tests all at alpha · max(R, 1)/m (Benjamini and Yekutieli 2005, JASA 100).

    >>> [[round(1 - level, 4) for level in levels_of_tests([0.01, 0.04, 0.03], how)] for how in ("holm", "bh")]
    [[0.0167, 0.025, 0.025], [0.05, 0.05, 0.05]]
    """
    m, rejected = len(p_values), sum(p is not None and p < alpha for p in adjust(p_values, method))
    if method == "bh":
        return [1 - alpha * max(rejected, 1) / max(m, 1)] * m
    rank_N = np.argsort(np.argsort(p_values, kind="stable"))
    return [1 - alpha / (m - min(int(rank), rejected, m - 1)) for rank in rank_N]


#: Share and smallest number of problems that must be longer under each arm.
SUPPORT, FEWEST = 0.1, 5


def adjusted(
    d_P: np.ndarray,
    longer_P: np.ndarray,
    better_P: np.ndarray,
    cluster_P: np.ndarray,
    noise: float = 0.0,
    more: float = 0.0,
    freedom: float = np.inf,
) -> Row:
    """Return adjusted_difference (the difference at equal log length and accuracy), adjusted_low, adjusted_high and
    adjusted_p; or else adjusted_reason.

    The method is least squares on the log length ratio, its square and the difference in accuracy, with errors that
    allow for near-duplicates. The data must have problems where the first arm's traces are longer, problems where the
    second's are, three clusters of problems per coefficient, and covariates that are not collinear. more: variance
    added by seeds. freedom: degrees of freedom of that variance. noise: sampling variance of a problem's difference in
    accuracy, which makes the slope of accuracy too small. Part of the effect of accuracy then stays in the adjusted
    difference, unless diversity comes from the same rollouts. So the interval covers the fitted difference and the one
    corrected for attenuation (errors in variables, Fuller 1987).
    """
    import statsmodels.api as sm
    from scipy import stats

    def not_adjusted(why: str) -> Row:
        return {"adjusted_reason": f"not adjusted: {why}"}

    fewer = min(int((longer_P <= 0).sum()), int((longer_P >= 0).sum()))
    if fewer < max(FEWEST, SUPPORT * len(longer_P)):
        return not_adjusted(
            f"lengths are hardly ever equal (log ratio from {longer_P.min():+.2f} to {longer_P.max():+.2f},"
            f" {fewer} of {len(longer_P)} problems on one side of 0): compare windows of equal length"
        )
    covariates_PC = np.column_stack([longer_P, longer_P**2, better_P])
    covariates_PC = covariates_PC[:, np.ptp(covariates_PC, axis=0) > 1e-9]  # full windows all have the same length
    n, c = len(np.unique(cluster_P)), covariates_PC.shape[1]
    if n < 3 * (c + 1):
        return not_adjusted(f"{n} problems are too few for {c + 1} coefficients")
    design_PC = sm.add_constant(covariates_PC, has_constant="add")
    if np.linalg.matrix_rank(design_PC) < design_PC.shape[1]:
        return not_adjusted("length and accuracy differ alike, and neither can be held fixed")
    result = sm.OLS(d_P, design_PC).fit(**robust(cluster_P), use_t=True)
    at, error = float(result.params[0]), float(np.hypot(result.bse[0], np.sqrt(more)))
    df = min(n - c - 1, freedom)
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * error
    low, high, p = at - half, at + half, float(2 * stats.t.sf(abs(at) / error, df)) if error > 0 else np.nan
    if not np.all(np.isfinite((at, half, p))):
        return not_adjusted("covariates that do not vary")

    lengths_P3 = np.column_stack([np.ones(len(d_P)), longer_P, longer_P**2])
    mean_3 = np.linalg.lstsq(lengths_P3, better_P, rcond=None)[0]
    rest_P, df = better_P - lengths_P3 @ mean_3, len(d_P) - 4
    squares = float(rest_P @ rest_P)
    if noise and squares >= 1e-18:
        true = squares / (df + 1) - noise
        if true < noise:
            return not_adjusted("accuracy is known from too few rollouts to be held equal")
        slope, shift = float(rest_P @ d_P) / squares, float(mean_3[0]) * noise / true
        away_P = d_P - lengths_P3 @ np.linalg.lstsq(lengths_P3, d_P, rcond=None)[0] - slope * rest_P
        t = float(stats.t.ppf((1 + LEVEL) / 2, df))
        half = np.hypot(half, t * np.sqrt(float(away_P @ away_P) / df / squares) * shift)
        moved = at - slope * shift
        p = max(p, float(2 * stats.t.sf(abs(moved) / half * t, df)) if at * moved > 0 else 1.0)
        low, high = min(low, moved - half), max(high, moved + half)
    return {"adjusted_difference": at, "adjusted_low": low, "adjusted_high": high, "adjusted_p": p}


# ---- families of tests: which p-values are corrected together, and how; each table declares its own
#
# Two families are confirmatory (Holm, family-wise error 5 %): the differences of gains over all sources, and the
# differences of compared objectives from the baseline. All others are exploratory (Benjamini-Hochberg, false discovery
# rate 5 % within each family).
# discovery rate 5 % within each family).

Family = tuple[str, Literal["holm", "bh"]]


def family_of_gain(row: Row) -> Family:
    """Return the family of tests for the p-value of this gain: its name and its correction."""
    return "gains" if row["source"] == "all" else "gains by source", "bh"


def in_families(
    rows: Sequence[Row], family_of: Callable[[Row], Family], p: str = "p_value", *, beside: Sequence[str] = ()
) -> list[Row]:
    """Add p_adjusted and family (`name: correction of number`) to rows with a p-value. A row with `ends`, the interval
    as a function of its level, also gets the interval that agrees with p_adjusted: corrected_low and corrected_high.

    beside: names of other p-values, each corrected on its own within the family, as `<name>_corrected`.

    >>> found = in_families([{"p_value": 0.01}, {"p_value": 0.04}, {}], lambda row: ("gains", "holm"))
    >>> [(r.get("p_adjusted"), r.get("family")) for r in found]
    [(0.02, 'gains: Holm of 2'), (0.04, 'gains: Holm of 2'), (None, None)]
    """
    out = [dict(row) for row in rows]
    families: dict[Family, list[Row]] = {}
    for row in out:
        families.setdefault(family_of(row), []).append(row)
    for (name, method), members in families.items():
        for raw, corrected in ((p, "p_adjusted"), *((other, f"{other}_corrected") for other in beside)):
            mine = [row for row in members if row.get(raw) is not None]
            for row, fixed in zip(mine, adjust([row[raw] for row in mine], method), strict=True):
                row[corrected] = fixed
                if raw == p:
                    row["family"] = f"{name}: {'Holm' if method == 'holm' else 'Benjamini-Hochberg'} of {len(mine)}"
            if raw == p:
                for row, level in zip(mine, levels_of_tests([row[p] for row in mine], method), strict=True):
                    if "ends" in row:
                        row["corrected_low"], row["corrected_high"] = row.pop("ends")(level)
    return out


# ---- tests of paired categories: do two arms give the same problems the same bands?

LIVE = list(Band).index(Band.VARIANCE)
NO_ODDS = "no problem is in the second's variance band alone: no odds"
BOTH_WAYS = "what moved, moved both ways within every cluster of near-duplicates"


def mcnemar_exact(only_first: int, only_second: int) -> float | None:
    """Return the two-sided exact McNemar p, a binomial test of the discordant problems; None without such problems.

    >>> mcnemar_exact(3, 3), round(mcnemar_exact(5, 0), 4), mcnemar_exact(0, 0) is None
    (1.0, 0.0625, True)
    """
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return None if discordant == 0 else float(binomtest(only_first, discordant, 0.5).pvalue)


def band_tests(first_P: np.ndarray, second_P: np.ndarray, cluster_P: np.ndarray) -> list[Row]:
    """Return three comparisons of two arms' bands, given as indices in Band: McNemar (variance band or not),
    Stuart-Maxwell (equal margins) and weighted kappa. estimate: the statistic; for McNemar the odds of the discordant
    problems with their interval, or None if one side has no such problems.

    With near-duplicates, the changes are summed by cluster_P, also in the covariance, and p comes from exchanging the
    arms in whole clusters. Without them, p is exact (McNemar) or from chi square.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    one_PK, other_PK = (np.eye(len(Band))[places] for places in (first_P, second_P))
    alone = len(np.unique(cluster_P)) == len(cluster_P)
    maxwell: Row = {"reason": "the two arms band every problem alike"}
    if not np.array_equal(first_P, second_P):
        maxwell = _tested(_by_cluster(one_PK - other_PK, cluster_P), alone)
    kappa: Row = {"reason": "all problems are in one band"}
    if len({*first_P, *second_P}) > 1:
        found: Any = cohens_kappa(one_PK.T @ other_PK, wt="linear", return_results=False)
        kappa = {"estimate": float(found)}
    return [
        _mcnemar(first_P == LIVE, second_P == LIVE, cluster_P, alone),
        {"metric": "stuart_maxwell"} | maxwell,
        {"metric": "weighted_kappa"} | kappa,
    ]


def _mcnemar(live_P: np.ndarray, other_P: np.ndarray, cluster_P: np.ndarray, alone: bool) -> Row:
    only_P2 = np.column_stack([live_P & ~other_P, other_P & ~live_P]) * 1.0
    first, second = (int(v) for v in only_P2.sum(axis=0))
    row: Row = {"metric": "mcnemar", "band": Band.VARIANCE, "count": first + second}
    if not first + second:
        return row | {"reason": "no problem is in one variance band alone"}
    row |= {"estimate": first / second} if second else {"reason": NO_ODDS}
    if alone:
        row["p_value"] = mcnemar_exact(first, second)
        low, high = share_interval(first, first + second, "beta")
        if second:  # the ends are the odds of the share's ends; an infinite upper end is left out
            row |= {"low": low / (1 - low)} | ({"high": high / (1 - high)} if high < 1 else {})
        return row
    row |= _tested(_by_cluster(only_P2 @ np.array([[1.0], [-1.0]]), cluster_P), alone) | {
        "estimate": row.get("estimate")
    }
    if not first:
        row |= {"reason": "no problem is in the first's variance band alone: no interval"}
    if first and second:
        only_C2 = folded(only_P2[None], cluster_P)[0]
        _, low, high = ratio(only_C2[None, :, 0], only_C2[None, :, 1], trained=False)
        row |= {"low": low, "high": high} if np.isfinite(low) else {"reason": row.get("reason", ONE_PROBLEM)}
    return row


def _by_cluster(moved_PV: np.ndarray, cluster_P: np.ndarray) -> np.ndarray:
    found, at_P = np.unique(cluster_P, return_inverse=True)
    moved_CV = np.zeros((len(found), moved_PV.shape[1]))
    np.add.at(moved_CV, at_P, moved_PV)
    return moved_CV[moved_CV.any(axis=1)]


def _tested(moved_CV: np.ndarray, alone: bool) -> Row:
    """Return statistic and p of the summed changes, in units of their covariance under equality, Σ_c d_c d_cᵀ. Flips of
    signs do not change this covariance. Directions without changes are left out."""
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

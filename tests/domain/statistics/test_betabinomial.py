"""Expected bands: the fit by hand and against known truths, with problems that nothing solves or without."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.statistics.curves_of_k import GRID_J, beyond_shift, shifted, spread_of_difficulty
from tasks.domain.statistics.difficulty import expectations, fit
from tasks.domain.statistics.paired_tests import band_tests, mcnemar_exact
from tasks.domain.statistics.regression import rank_correlations

G = 16
Pool = Callable[[np.random.Generator, int], np.ndarray]


#: Success rates of many problems. Those of the last two are spread like no beta distribution.
POOLS: dict[str, Pool] = {
    "beta": lambda rng, n: rng.beta(0.277, 1.322, n),
    "never or beta": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.beta(2.0, 2.0, n)),
    "always, never or beta": lambda rng, n: rng.choice([1.0, 0.0, np.nan], n, p=[0.4, 0.3, 0.3]),
    "hard or easy": lambda rng, n: np.where(rng.random(n) < 0.5, 0.05, 0.6),
}


def rates(pool: str, rng: np.random.Generator, problems: int) -> np.ndarray:
    found = POOLS[pool](rng, problems)
    return np.where(np.isnan(found), rng.beta(2.0, 2.0, problems), found)


def ends(row: dict) -> tuple[float, float]:
    """The interval of a row, or the bounds that its reason tells."""
    if row.get("low") is not None:
        return row["low"], row["high"]
    low, high = re.findall(r"\d\.\d{3}", row["reason"])
    return float(low) - 5e-4, float(high) + 5e-4


def test_problems_that_nothing_solves_are_found_and_are_not_called_mislabelled() -> None:
    rng = np.random.default_rng(0)
    counts = {
        pool: [(8, int(c)) for c in rng.binomial(8, rates(pool, rng, 2000))] for pool in ("beta", "never or beta")
    }
    plain, found = (fit(of) for of in counts.values())
    assert plain is not None and plain.zero < 0.15
    assert found is not None and found.zero == pytest.approx(0.6, abs=0.05)
    # of a beta alone with as many all_zero groups, one in six would be live at the training size
    [row] = [r for r in expectations(counts["never or beta"], G) if r.get("band") == "all_zero"]
    assert row["estimate"] < 0.12


@pytest.mark.parametrize("pool", POOLS)
def test_intervals_hold_what_is_expected(pool: str) -> None:
    """100 problems, 20 studies. The truth of a count is what a large pool says of problems with this count."""
    many = rates(pool, np.random.default_rng(0), 200_000)
    lively, seen = 1 - many**G - (1 - many) ** G, np.array([many**c * (1 - many) ** (8 - c) for c in range(9)])
    given = seen @ lively / seen.sum(axis=1)
    held: dict[str, list[bool]] = {"expected_live": [], "mislabelled": [], "live_in_band": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        correct = rng.binomial(8, rates(pool, rng, 100))
        dead = np.isin(correct, (0, 8))
        truths = {"mislabelled": given[correct[dead]].mean(), "live_in_band": given[correct[~dead]].mean()}
        for row in expectations([(8, int(c)) for c in correct], G):
            if row["metric"] in held and row.get("band") in (None, "variance"):
                low, high = ends(row)
                held[row["metric"]].append(low <= truths.get(row["metric"], lively.mean()) <= high)
                assert low <= row["estimate"] <= high
                no_interval = row["reason"].startswith("no interval: rollouts so few") if row.get("reason") else False
                assert no_interval == (row["metric"] != "expected_live")
    assert min(map(np.mean, held.values())) >= 0.8  # three standard errors under 0.95


def test_near_duplicates_say_no_more_than_one() -> None:
    """Every problem five times over: the likelihood grows fivefold, and so does what it does not tell from the best.
    Before, intervals of expected bands were as narrow as those of five times as many problems."""
    counts = [(8, c) for c in [0] * 12 + [1, 2, 3, 5, 7] * 2 + [8] * 6]
    alone, as_if_others, alike = (
        {(r["metric"], r.get("band")): r for r in expectations(many, G, times)}
        for many, times in ((counts, 1.0), (counts * 5, 1.0), (counts * 5, 5.0))
    )
    for key in (("expected_live", None), ("mislabelled", None)):
        (low, high), *others = (ends(found[key]) for found in (alone, as_if_others, alike))
        width, (narrow, same) = high - low, (one[1] - one[0] for one in others)
        assert same == pytest.approx(width, rel=0.1)
        assert narrow < 0.7 * width


# Closure beyond a constant shift of logits: nothing where there is only a shift, something where one is wider.


N, K = 16, 8


def counted(p_SP: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(S, P, 4): rollouts, correct ones, pass@1, pass@K."""
    correct = rng.binomial(N, p_SP)
    miss = np.prod([(N - correct - i).clip(0) / (N - i) for i in range(K)], axis=0)
    return np.stack([np.full(p_SP.shape, N), correct, correct / N, 1 - miss], axis=2)


def test_a_spread_at_one_difficulty_is_found_and_shifted_by_hand() -> None:
    # all problems at 8 of 16: after a shift to .75, pass@2 is 1 - .25²
    q = spread_of_difficulty(np.full(50, 16.0), np.full(50, 8.0), np.full((1, 50), 1 / 50))
    assert abs(float(q[0] @ GRID_J)) < 0.01
    first, second = shifted(q, np.array([0.75]), (1, 2))
    assert (first[0], second[0]) == pytest.approx((0.75, 1 - 0.25**2), abs=0.01)


def test_a_shift_alone_closes_the_gap_and_leaves_nothing_beyond() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, 600)
    pair = [counted(1 / (1 + np.exp(-(logits + shift)))[None], rng) for shift in (0.0, 1.5)]
    null, excess = beyond_shift(pair, (False, False), (1, K), np.arange(600), 0)
    low, high = (float(end[0]) for end in excess.interval())
    gap_at_1, gap_at_k = np.abs((pair[0] - pair[1]).mean(axis=(0, 1))[2:])
    closure = gap_at_1 - gap_at_k
    assert closure > 0.1
    assert null == pytest.approx(closure, abs=0.02)
    assert low < 0 < high
    assert null + float(excess.estimate_V[0]) == pytest.approx(closure)


def test_arms_of_the_same_adapters_close_seed_by_seed() -> None:
    """Seeds a logit apart do the same to both: of adapters of their own, the closure beyond a shift varies by more."""
    rng = np.random.default_rng(1)
    logits, shifts = rng.normal(0, 1.5, 150), np.array([-1.0, 0.0, 1.0])

    pair = [counted(1 / (1 + np.exp(-(logits + shifts[:, None] + move))), rng) for move in (0.0, 1.0)]
    own, shared = (
        beyond_shift(pair, (True, True), (1, K), np.arange(150), 0, paired=paired)[1].spread for paired in (False, True)
    )
    assert own.problems_V == shared.problems_V and own.seeds_V[0] > 3 * shared.seeds_V[0] > 0
    assert shared.seeds_df_V[0] == 2


# Tests of paired bands: by hand, against statsmodels where no problem has a near-duplicate, and their size where many
# do.


Row = dict[str, Any]


def problems_of(table: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Both arms' bands, problem by problem, of a cross-tab."""
    pairs = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    first, second = np.array(pairs).T
    return first, second


def contingency_told(table: list[list[int]]) -> dict[str, Row]:
    first, second = problems_of(table)
    return {r["metric"]: r for r in band_tests(first, second, np.arange(len(first)))}


def test_mcnemar_by_hand_and_bands_that_agree() -> None:
    assert mcnemar_exact(5, 1) == pytest.approx(2 * (1 + 6) / 64)
    alike = contingency_told([[3, 0, 0], [0, 4, 0], [0, 0, 5]])
    assert alike["stuart_maxwell"].get("p_value") is None
    assert alike["mcnemar"].get("p_value") is None
    assert alike["weighted_kappa"]["estimate"] == 1.0


def test_problems_without_near_duplicates_are_tested_as_statsmodels_does() -> None:
    from statsmodels.stats.contingency_tables import SquareTable

    table = [[30, 15, 2], [4, 25, 8], [1, 3, 18]]
    plain: Any = SquareTable(np.array(table), shift_zeros=False)
    rows = contingency_told(table)
    result = plain.homogeneity()
    assert rows["stuart_maxwell"]["estimate"] == pytest.approx(float(result.statistic))
    assert rows["stuart_maxwell"]["p_value"] == pytest.approx(float(result.pvalue))
    assert rows["mcnemar"]["p_value"] == mcnemar_exact(12, 18)


@pytest.mark.parametrize(("problems", "size"), [(100, 10), (300, 10), (60, 3)])
def test_like_arms_are_rarely_called_different_where_problems_are_alike(problems: int, size: int) -> None:
    """Near-duplicates share their chance and what an arm makes of it. Before, with 100 problems in tens, p was below .05 in
    18, 35 and 21 % of studies."""
    rng, found, studies = np.random.default_rng(11), Counter(), 200
    for _ in range(studies):
        easy = np.repeat(np.where(rng.random(problems // size) < 0.5, 0.05, 0.6), size)
        logit = np.log(easy / (1 - easy))
        own = [logit + np.repeat(rng.normal(size=problems // size), size) for _ in "ab"]
        correct = [rng.binomial(8, 1 / (1 + np.exp(-one))) for one in own]
        bands = [np.where(c == 0, 0, np.where(c == 8, 2, 1)) for c in correct]
        for row in band_tests(bands[0], bands[1], np.repeat(np.arange(problems // size), size)):
            found[row["metric"]] += row.get("p_value") is not None and row["p_value"] < 0.05
    assert max(found[name] / studies for name in ("mcnemar", "stuart_maxwell")) <= 0.095


# Correlations of all pairs at once equal those of each pair alone.


@given(seed=st.integers(0, 10_000), problems=st.sampled_from([3, 10, 40, 130, 260]), clustered=st.booleans())
def test_each_pair_has_the_correlation_that_it_has_alone(seed: int, problems: int, clustered: bool) -> None:
    """Continuous, tied, constant and rising values; with more clusters than are left out one by one."""
    draw = np.random.default_rng(seed)
    several = [
        draw.normal(size=problems),
        draw.integers(0, 3, problems).astype(float),
        np.ones(problems),
        np.arange(problems, dtype=float),
    ]
    cluster_P = draw.integers(0, max(2, problems // 2), problems) if clustered else np.arange(problems)
    pairs = list(combinations(range(len(several)), 2))
    for (one, other), together in zip(pairs, rank_correlations(several, pairs, cluster_P), strict=True):
        [alone] = rank_correlations([several[one], several[other]], [(0, 1)], cluster_P)
        assert repr(together) == repr(alone)

"""Means over problems and seeds: by hand, against plain t and Wilson, and at the edges."""

import math
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.nights import Cell, first_alarm
from storage.estimates import resample_classes, resample_means
from tasks.domain.statistics import estimators as e
from tasks.domain.statistics import paired_tests as s
from tasks.domain.statistics.means import combined, errors_at_any_look, folded, holds_for, together
from tasks.domain.statistics.nights import look
from tasks.domain.statistics.shares import proportions


def test_seeds_enter_by_hand() -> None:
    # three seeds at 0, 1, 2 on two problems alike: variance of the seeds' means 1, over 3 seeds 1/3, 2 degrees of freedom
    values = np.array([[[0.0], [0.0]], [[1.0], [1.0]], [[2.0], [2.0]]])
    found = combined([(1.0, values)], [True])
    assert (found.spread.seeds_V[0], found.spread.seeds_df_V[0], found.holds_for) == (
        pytest.approx(1 / 3),
        2.0,
        "the recipe, by 3 seeds",
    )
    assert found.interval()[1][0] == pytest.approx(1 + 4.3027 / np.sqrt(3), abs=1e-4)
    assert (holds_for(0), holds_for(1)) == (None, "these adapters, not the recipe")


def test_a_confidence_sequence_is_that_of_confseq() -> None:
    """confseq 0.0.11, TwoSidedNormalMixture of rho = 1/0.1² at v = 1/variance: its bound in standard errors."""
    error = np.array([0.2, 0.1, 0.05, 0.02, 0.005])
    assert errors_at_any_look(error**2) == pytest.approx([5.574320, 3.656395, 3.082390, 3.101539, 3.466322], abs=1e-6)
    rng = np.random.default_rng(0)
    found = combined([(1.0, rng.normal(0.1, 1.0, size=(1, 4000, 1)))], [False])
    wide = errors_at_any_look(found.spread.variance_V) * np.sqrt(found.spread.variance_V)
    low, high = (float(end[0]) for end in found.sequence())
    assert (low, high) == pytest.approx(
        (float((found.estimate_V - wide)[0]), float((found.estimate_V + wide)[0])), abs=1e-3
    )


def test_p_is_what_the_interval_says() -> None:
    """The interval at the level 1 - p just reaches 0, whatever the part of the seeds."""
    values = np.random.default_rng(1).normal(0.4, 1.0, size=(3, 40, 1)) + np.array([0.0, 0.3, -0.3])[:, None, None]
    found = combined([(1.0, values)], [True])
    assert found.spread.seeds_V[0] > 0
    low, _ = found.interval(1 - float(found.p_value()[0]))
    assert low[0] == pytest.approx(0.0, abs=1e-6)
    inside = float(found.p_equivalent(2.0)[0])
    assert found.interval(1 - 2 * inside)[1][0] == pytest.approx(2.0, abs=1e-6)


def test_near_duplicates_count_once() -> None:
    """The errors of statsmodels, clustered; a cluster for each problem changes nothing."""
    import statsmodels.api as sm

    rng = np.random.default_rng(3)
    cluster_P = rng.integers(0, 12, size=40)
    values = (rng.normal(size=12)[cluster_P] + rng.normal(0, 0.1, 40))[None, :, None]
    found = combined([(1.0, folded(values, cluster_P))], [False])
    clustered: Any = sm.OLS(values[0, :, 0], np.ones(40)).fit(cov_type="cluster", cov_kwds={"groups": cluster_P})
    size = len(set(cluster_P.tolist()))
    assert found.n == size
    assert found.estimate_V[0] == pytest.approx(values.mean())
    assert np.sqrt(found.spread.problems_V[0]) == pytest.approx(float(clustered.bse[0]), rel=1e-9)
    assert combined([(1.0, values)], [False]).spread.problems_V[0] < found.spread.problems_V[0] / 2
    assert folded(values, np.arange(40)) is values


def test_nothing_that_differs_still_has_a_width() -> None:
    alike = np.zeros((1, 25, 1))
    found = combined([(1.0, alike), (-1.0, alike)], [False, False], reach=1.0)
    low, high = (float(v[0]) for v in found.interval())
    assert low == -high < -0.05
    assert np.isnan(found.p_value()[0])
    assert np.isnan(combined([(1.0, alike)], [False]).interval()[0][0])


@given(st.lists(st.integers(0, 8), min_size=2, max_size=60), st.sampled_from([1, 2, 6]))
@settings(max_examples=60, deadline=None)
def test_a_share_has_an_interval_inside_0_and_1_that_is_never_a_point(correct: list[int], seeds: int) -> None:
    values = np.array([correct] * seeds, float)[:, :, None] / 8
    low, high = (float(v[0]) for v in proportions(values, seeds > 1))
    if seeds == 2 and set(correct) in ({0}, {8}):
        assert np.isnan([low, high]).all()
        return
    assert 0 <= low <= values.mean() + 1e-12
    assert values.mean() - 1e-12 <= high <= 1
    assert high - low > 0.01


def test_bands_for_all_columns_are_as_wide_as_their_correlation_asks() -> None:
    x = np.random.default_rng(0).normal(size=(400, 1))
    apart = np.random.default_rng(1).normal(size=(400, 6))
    assert together(np.repeat(x, 6, axis=1), 20_000, 0) == pytest.approx(1.0, abs=0.02)
    independent = stats.norm.ppf((1 + 0.95 ** (1 / 6)) / 2) / stats.norm.ppf(0.975)
    assert together(apart, 20_000, 0) == pytest.approx(independent, abs=0.02)


@pytest.mark.parametrize("rollouts", [8, 32, 400])
def test_an_adjustment_holds_for_an_accuracy_that_is_hardly_known(rollouts: int) -> None:
    """Diversity falls with accuracy and with nothing else, and one arm is better: what is printed as left holds 0."""
    rng, held = np.random.default_rng(1), []
    for _ in range(40):
        logit = rng.normal(0, 1.2, 100)
        first, second = (1 / (1 + np.exp(-logit - shift - rng.normal(0, 0.5, 100))) for shift in (0.8, 0.0))
        d, longer = -0.2 * (first - second) + rng.normal(0, 0.04, 100), rng.normal(0, 0.3, 100)
        shares = [rng.binomial(rollouts, p) / rollouts for p in (first, second)]
        better, noise = shares[0] - shares[1], sum((s * (1 - s)).mean() / (rollouts - 1) for s in shares)
        left = s.adjusted(d, longer, better, np.arange(100), noise)
        if "adjusted_low" in left:
            held.append(left["adjusted_low"] < 0 < left["adjusted_high"] and left["adjusted_p"] > 0.05)
    if rollouts == 8:
        assert len(held) <= 4  # of 40: refused, but for chance
        return
    assert len(held) > 30
    assert np.mean(held) >= 0.84  # three standard errors under 0.95


@pytest.mark.parametrize("n", [20, 100, 300])
def test_a_share_of_hardly_any_problem_is_covered(n: int) -> None:
    """By the binomial distribution itself, with one rollout a problem: Wilson's falls to 86 % where one problem in ten
    studies is solved."""
    ends = [proportions((np.arange(n) < x)[None, :, None] * 1.0, False) for x in range(n + 1)]
    low, high = (np.array([float(end[i][0]) for end in ends]) for i in (0, 1))
    for share in np.concatenate([np.linspace(0.01, 4, 200) / n, 1 - np.linspace(0.01, 4, 200) / n]):
        chance = stats.binom.pmf(np.arange(n + 1), n, share)
        assert chance[(low <= share) & (share <= high)].sum() >= 0.92, share


# Paired tests, intervals and corrections against worked values, scipy's independent routes and brute force.


differences = st.lists(st.floats(-3, 3, allow_nan=False), min_size=2, max_size=12)


@given(differences)
@settings(deadline=None)
def test_paired_is_scipys_paired_t(d: list[float]) -> None:
    x = np.array(d)
    assume(x.std() > 1e-6)
    r, expected = s.paired(x, np.zeros(len(x))), stats.ttest_rel(x, np.zeros(len(x)))
    assert (r["t"], r["p_t"]) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert r["p_normal"] <= r["p_t"] + 1e-12


@given(st.lists(st.floats(-2, 2, allow_nan=False), min_size=1, max_size=9))
@settings(deadline=None)
def test_sign_flips_are_exact_for_few_problems(d: list[float]) -> None:
    x = np.array(d)
    sums = np.array(list(product((1.0, -1.0), repeat=len(x)))) @ x
    slack = 1e-12 * np.abs(x).sum()
    assert s.sign_flip(x, draws=10, seed=0) == pytest.approx((np.abs(sums) >= abs(x.sum()) - slack).mean())


@given(st.lists(st.integers(-4, 4).filter(bool), min_size=2, max_size=7))
@settings(deadline=None, max_examples=30)
def test_signed_ranks_of_few_problems_are_scipys_permutation_test(d: list[int]) -> None:
    x = np.array(d, float)
    every_flip: Any = stats.PermutationMethod(n_resamples=1 << 8)
    theirs: Any = stats.wilcoxon(x, method=every_flip)
    assert s.wilcoxon(x) == pytest.approx(theirs.pvalue)


def test_sign_flips_of_many_problems_agree_with_t_and_are_never_zero() -> None:
    x = np.random.default_rng(0).normal(0.3, 1, 60)
    p, t = s.sign_flip(x, draws=20_000, seed=1), s.paired(x, np.zeros(60))["p_t"]
    assert p == pytest.approx(t, abs=0.01)
    assert s.sign_flip(np.ones(60), draws=100, seed=0) == pytest.approx(1 / 101)


@given(st.lists(st.integers(0, 8), min_size=2, max_size=40))
@settings(max_examples=20, deadline=None)
def test_drawing_class_counts_is_the_bootstrap_over_problems(correct: list[int]) -> None:
    values = np.array(correct, float) / 8
    classes, counts = np.unique(values, return_counts=True)
    by_class = resample_classes(counts, 4000, 0) @ classes
    plain = resample_means(values[:, None], 4000, 1)[:, 0]
    error = values.std() / math.sqrt(len(values))
    assert by_class.mean() == pytest.approx(plain.mean(), abs=5 * error / math.sqrt(4000) + 1e-9)
    assert by_class.std() == pytest.approx(error, rel=0.1, abs=1e-9)


@pytest.mark.parametrize("n", [9, 40])
def test_differences_that_are_equal_up_to_rounding_tie(n: int) -> None:
    """.3 − .2, .2 − .1 and .1 are three floats; .1 + .2 − .3 is not 0."""
    exact = np.array([1, -1, 1, 0, 2, -2, 1, 1, 1] * 5)[:n]
    rounded = np.array(
        [0.3 - 0.2, 0.1 - 0.2, 0.2 - 0.1, 0.1 + 0.2 - 0.3, 0.3 - 0.1, 0.1 - 0.3, 0.1, 0.4 - 0.3, 0.1] * 5
    )[:n]
    assert s.wilcoxon(rounded) == s.wilcoxon(exact.astype(float))
    cluster_P = np.arange(n) // 2
    assert s.wilcoxon(rounded, cluster_P) == s.wilcoxon(exact.astype(float), cluster_P)


@pytest.mark.parametrize("method", ["holm", "bh"])
@given(p_values=st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8))
def test_an_interval_of_that_level_excludes_zero_if_and_only_if_the_corrected_p_is_small(
    method: str, p_values: list[float]
) -> None:
    """An interval of level L excludes 0 if and only if its p-value is below 1 − L."""
    for p, corrected, level in zip(
        p_values, s.adjust(p_values, method), s.levels_of_tests(p_values, method), strict=True
    ):
        assert corrected is not None
        if abs(corrected - 0.05) > 1e-9:
            assert (p < 1 - level) is (corrected < 0.05)
        assert level >= 0.95 - 1e-12


# Estimators against worked values, brute force, and what must hold for any input.


def unit_vectors(n: int, seed: int) -> np.ndarray:
    v = np.random.default_rng(seed).normal(size=(n, 5))
    return (v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(2, 12), st.integers(0, 99))
@settings(deadline=None)
def test_distance_and_spread_against_the_pairs_themselves(n: int, seed: int) -> None:
    v = unit_vectors(n, seed)
    by_pairs = np.mean([1 - float(v[i].astype(float) @ v[j].astype(float)) for i, j in combinations(range(n), 2)])
    found = e.mean_pairwise_distance(v)
    assert found is not None
    assert found == pytest.approx(by_pairs, abs=1e-6)
    # for unit vectors the published "emb_variance_trace" is (n-1)/n of the distance: over n - 1 it is the distance
    assert e.spread(v) == pytest.approx(found, abs=1e-6)


@given(st.integers(2, 10), st.integers(0, 50))
@settings(deadline=None)
def test_clusters_are_those_of_dbscan(n: int, seed: int) -> None:
    from sklearn.cluster import DBSCAN

    v = unit_vectors(n, seed)
    labels = DBSCAN(eps=0.25, min_samples=2, metric="precomputed").fit_predict(np.clip(1 - v.astype(float) @ v.T, 0, 2))
    expected = len(set(labels) - {-1}) + int((labels == -1).sum())
    assert e.num_clusters(v) == expected


def test_what_is_measured_of_a_group_does_not_depend_on_its_size() -> None:
    """Means over many groups of 6 and of 24 from one population."""
    rng = np.random.default_rng(0)
    found: dict[int, list[float]] = {}
    for n in (6, 24):
        vectors = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.normal(1.0, 1.0, size=(300, n, 5))]
        found[n] = [
            float(np.mean([e.length_cv(x) for x in rng.gamma(4.0, size=(3000, n))])),  # type: ignore[arg-type]
            float(np.mean([e.vendi_of_k(v, 4) for v in vectors])),  # type: ignore[arg-type]
            float(np.mean([e.spread(v) for v in vectors])),  # type: ignore[arg-type]
        ]
    assert found[6] == pytest.approx(found[24], rel=0.05)


# Nightly drift: the scan's p-value against all permutations, its level by simulation, and what a night may leave out.


def largest(correct_NP: np.ndarray, rollouts_NP: np.ndarray) -> float:
    """The scan as its definition has it, problem by problem."""
    found = []
    for night in range(1, len(correct_NP)):
        above, variance = 0.0, 0.0
        for problem in range(correct_NP.shape[1]):
            total, right = rollouts_NP[:, problem].sum(), correct_NP[:, problem].sum()
            late = rollouts_NP[night:, problem].sum()
            above += correct_NP[night:, problem].sum() - late * right / total
            variance += late * right * (total - right) * (total - late) / total**2 / (total - 1)
        found.append(abs(above) / variance**0.5)
    return max(found)


def test_p_is_that_of_all_permutations_within_problems() -> None:
    correct_NP, rollouts_NP = np.array([[2, 2, 1], [1, 0, 1], [0, 0, 0]]), np.array([[2, 2, 2], [1, 2, 1], [1, 0, 1]])
    ways = []
    for problem in range(3):
        drawn = np.repeat(np.arange(3), rollouts_NP[:, problem])
        ones = [1] * correct_NP[:, problem].sum()
        each = set(permutations(ones + [0] * (len(drawn) - len(ones))))
        ways.append([np.bincount(drawn, weights, minlength=3) for weights in each])
    observed = largest(correct_NP, rollouts_NP)
    all_of_them = [largest(np.stack(way, axis=1), rollouts_NP) for way in product(*ways)]
    exact = np.mean([one >= observed - 1e-9 for one in all_of_them])
    found = look(correct_NP, rollouts_NP, level=1.0, seed=0)
    assert abs(found.z) == pytest.approx(observed) and found.p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("cell", [Cell(25, 1), Cell(40, 2)], ids=lambda cell: cell.name)
def test_false_alarms_over_a_quarter(cell: Cell) -> None:
    """At most 5 %: of 40 quarters 7 or more would come in 3 cases of 1,000."""
    assert sum(first_alarm(cell, seed, 90) > 0 for seed in range(40)) < 7


def test_a_drop_of_six_points_is_found_within_three_nights() -> None:
    assert sum(first_alarm(Cell(100, 8, changed=1, drop=0.06), seed, 3) > 0 for seed in range(20)) >= 17

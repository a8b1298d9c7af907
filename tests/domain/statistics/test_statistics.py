"""Paired tests, intervals and corrections against worked values, scipy's independent routes and brute force."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from storage.rules import resample_classes, resample_means
from tasks.domain.statistics import paired_tests as s
from tasks.domain.statistics.power import Design, simulate

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


def test_what_cannot_be_compared_says_why() -> None:
    none, one, same = (
        s.paired(np.array(a), np.array(b)) for a, b in (([], []), ([1.0], [0.0]), ([1.0, 2.0], [0.0, 1.0]))
    )
    assert none == {"n": 0, "reason": "no problem in common"}
    assert (one["difference"], one.get("p_t"), one["reason"]) == (1.0, None, "one problem has no spread")
    assert (same["difference"], same.get("t")) == (1.0, None)
    assert same["reason"] == "every problem differs by the same amount: no interval"


def test_corrections_over_a_family_by_hand() -> None:
    # Holm: 3·0.01, max(0.03, 2·0.02), max(0.04, 1·0.03); Benjamini-Hochberg: 0.03 for all three
    assert s.adjust([0.01, 0.02, 0.03], "holm") == pytest.approx([0.03, 0.04, 0.04])
    assert s.adjust([0.01, 0.02, 0.03], "bh") == pytest.approx([0.03, 0.03, 0.03])
    assert s.adjust([None, 0.04], "holm") == [None, 0.04]
    assert s.adjust([None], "bh") == [None]


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


def test_power_agrees_with_a_published_table() -> None:
    # 100 problems, +5 pp: G = 1 about 21 %, G = 16 about 98 % (notes on statistics, own simulation there)
    assert simulate(0.05, Design(num_problems=100, group_size=1), trials=1000).power == pytest.approx(0.21, abs=0.04)
    assert simulate(0.05, Design(num_problems=100, group_size=16), trials=1000).power == pytest.approx(0.98, abs=0.02)
    with pytest.raises(ValueError, match="no shift"):
        simulate(0.95, Design(num_problems=10, group_size=1), trials=100)


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

"""Tests of paired bands: by hand, against statsmodels where no problem has a near-duplicate, and their size where many do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tasks.domain.statistics.paired_tests import band_tests, mcnemar_exact

Row = dict[str, Any]


def problems_of(table: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Both arms' bands, problem by problem, of a cross-tab."""
    pairs = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    first, second = np.array(pairs).T
    return first, second


def told(table: list[list[int]], cluster: np.ndarray | None = None) -> dict[str, Row]:
    first, second = problems_of(table)
    return {r["metric"]: r for r in band_tests(first, second, np.arange(len(first)) if cluster is None else cluster)}


def test_mcnemar_by_hand_and_bands_that_agree() -> None:
    assert mcnemar_exact(5, 1) == pytest.approx(2 * (1 + 6) / 64)
    alike = told([[3, 0, 0], [0, 4, 0], [0, 0, 5]])
    assert alike["stuart_maxwell"].get("p_value") is None
    assert alike["mcnemar"].get("p_value") is None
    assert alike["weighted_kappa"]["estimate"] == 1.0


def test_problems_without_near_duplicates_are_tested_as_statsmodels_does() -> None:
    from statsmodels.stats.contingency_tables import SquareTable

    table = [[30, 15, 2], [4, 25, 8], [1, 3, 18]]
    plain: Any = SquareTable(np.array(table), shift_zeros=False)
    rows = told(table)
    result = plain.homogeneity()
    assert rows["stuart_maxwell"]["estimate"] == pytest.approx(float(result.statistic))
    assert rows["stuart_maxwell"]["p_value"] == pytest.approx(float(result.pvalue))
    assert rows["mcnemar"]["p_value"] == mcnemar_exact(12, 18)


def test_every_problem_asked_twice_says_no_more_than_once() -> None:
    table = [[10, 6, 0], [2, 12, 1], [0, 3, 4]]
    once = told(table)
    first, second = problems_of(table)
    twice = np.repeat(np.arange(len(first)), 2)
    doubled = {r["metric"]: r for r in band_tests(np.repeat(first, 2), np.repeat(second, 2), twice)}
    for name in ("mcnemar", "stuart_maxwell"):
        assert doubled[name]["p_value"] == pytest.approx(once[name]["p_value"], abs=0.08)
    assert doubled["mcnemar"]["low"] < doubled["mcnemar"]["estimate"] < doubled["mcnemar"]["high"]
    assert doubled["stuart_maxwell"]["estimate"] == pytest.approx(once["stuart_maxwell"]["estimate"])


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

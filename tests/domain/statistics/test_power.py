"""Power: a promised effect is found as often as promised, and all that compute it agree."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from cli.analysis import power as command
from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from tasks.domain.statistics import power
from tasks.domain.statistics.means import Spread
from tasks.domain.statistics.power import Design, Question, detectable, simulate
from tests.dashboards.synthetic import put
from tests.measures.conftest import rows_of


def least(design: Design) -> float:
    found = detectable(design)
    assert found is not None
    return found


@pytest.mark.parametrize("seeds", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 8))])
@pytest.mark.parametrize("question", ["accuracy", "gains", "diversity"])
def test_the_detectable_effect_is_found_in_four_of_five_studies(question: Question, seeds: int) -> None:
    design = Design(num_problems=100, group_size=8, question=question, seeds=seeds, seed_sd=0.05 if seeds > 1 else 0.0)
    assert simulate(least(design), design, trials=4000, seed=7).power == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("freedom", "highest"), [(1, 18.0), (2, 9.0), (4, 6.0), (99, 6.0)])
def test_with_one_variance_it_is_that_of_noncentral_t(freedom: int, highest: float) -> None:
    from scipy.optimize import brentq

    t = stats.t.isf(0.025, freedom)
    expected = brentq(lambda d: stats.nct.sf(t, freedom, d) - 0.8, 1.0, highest)
    one, none = np.ones(1), np.zeros(1)
    of_problems = Spread(one, freedom * one, none, one)
    of_seeds = Spread(1e-12 * one, one, one, freedom * one)
    assert of_problems.found(0.025, 0.8, False)[0] == pytest.approx(expected, rel=3e-3)
    assert of_seeds.found(0.025, 0.8, False)[0] == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize("seeds", [1, 3, 5, 8])
def test_a_study_says_of_its_own_spread_what_was_planned(seeds: int) -> None:
    """On average: the spread that a study sees is its own."""
    design = Design(num_problems=100, group_size=8, question="gains", seeds=seeds, seed_sd=0.05 if seeds > 1 else 0.0)
    studies = power._studies(least(design), design, 400, 3)
    said = float(np.mean(np.concatenate([means.detectable() for means in studies])))
    assert said == pytest.approx(least(design), rel=0.07)


def test_the_difficulty_of_an_arm_is_found_in_its_groups() -> None:
    """And said to be unknown where chance alone would spread them as much."""
    rng = np.random.default_rng(0)
    for a, b in ((0.277, 1.322), (2.0, 3.0)):
        counts = [(8, int(c)) for c in rng.binomial(8, rng.beta(a, b, 4000))]
        assert power.difficulty_of_counts(counts) == pytest.approx((a, b), rel=0.1)
    with pytest.raises(ValueError, match="do not differ more than by chance"):
        power.difficulty_of_counts([(8, 4)] * 20)


# `varband power` on the difficulty that an arm of the root has.


def test_the_difficulty_of_a_measured_arm(tmp_path: Path) -> None:
    """Rollouts after training do not count, and a rollout in two artifacts counts once."""
    rng, store = np.random.default_rng(0), Store(tmp_path)
    store.prepare()
    groups = {f"p{i}": "".join("c" if u < p else "w" for u in rng.random(8)) for i, p in enumerate(rng.beta(1, 3, 400))}
    tables = [rows_of(groups), rows_of({"p1": groups["p1"]}), rows_of(dict.fromkeys(groups, "c" * 8), step=40)]
    for n, table in enumerate(tables):
        put(store, Rollouts, table, about=n)

    def run(*words: str) -> str:
        options = ["-n", "100", "-g", "8", "--trials", "100", "--root", str(tmp_path), *words]
        return CliRunner().invoke(command, options, catch_exceptions=False).output

    a, b = json.loads(run("--difficulty", "panel", "--json"))["difficulty"]
    solved = sum(group.count("c") for group in groups.values()) / (8 * len(groups))
    assert abs(a / (a + b) - solved) < 1e-9 and 2.5 < a + b < 6
    printed = run("--difficulty", "panel")
    assert "Difficulty: panel on 400 problems" in printed and "SD between seeds: 0," in printed

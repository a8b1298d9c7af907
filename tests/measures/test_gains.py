"""The difference of gains between arms, by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.domain.grpo.learner_config import BASELINE
from tasks.domain.statistics.means import Seeded
from tasks.measures.curves import curves_of, gains_of
from tasks.measures.groups import count_groups
from tasks.measures.objectives import compared, values_of
from tasks.measures.over_seeds import improvement, improvement_of_pairs, over_seeds_and_sources, over_seeds_of
from tests.measures.conftest import rows_of
from tests.measures.simulated import group_rows, names


def told(*parts: pa.Table) -> dict[str, dict]:
    return {r["source"]: r for r in gains_of(count_groups(pa.concat_tables(parts))).to_pylist()}


def test_one_seed_by_hand() -> None:
    row = told(
        rows_of({"a": "ww", "b": "ww", "c": "cw"}),
        rows_of({"a": "cc", "b": "cw", "c": "cw"}, step=9, adapter="p"),
        rows_of({"a": "ww", "b": "ww", "c": "ww"}, arm="thinking"),
        rows_of({"a": "ww", "b": "cw", "c": "ww"}, arm="thinking", step=9, adapter="t"),
    )["all"]
    # gains 1 1/2 0 and 0 1/2 0: differences 1 0 0, variance 1/3; kurtosis 1.5, so that 4/(4·5)/(1 + 2)^2.5 = .0128 stands for
    # what was not seen; t = (1/3)/sqrt(1/9 + .0128) = .9468 with 6/(1.5 − 1 + 17/3) = .97 and so 1 degree of freedom
    error = (1 / 9 + 4 / 20 / 3**2.5) ** 0.5
    assert (row["arm"], row["other"], row["step"], row["n"], row["seeds"]) == ("panel", "thinking", 9, 3, 1)
    assert (row["gain"], row["other_gain"], row["estimate"]) == pytest.approx((0.5, 1 / 6, 1 / 3))
    assert row["p_value"] == row["p_adjusted"] == pytest.approx(0.5174, abs=1e-4)
    # 1/3 ± 12.706 · error, within what accuracies can do that were 1/6 apart before
    for kind in ("", "sequence_", "corrected_"):
        assert (row[f"{kind}low"], row[f"{kind}high"]) == pytest.approx((-7 / 6, 5 / 6))
    # noncentral t with 1 degree of freedom has 80 % above 12.706 at 16.334: no difference of gains is so large
    assert 16.334 * error > 2 and row["detectable"] is None
    assert row["family"] == "difference of gains: Holm of 1"
    assert row["holds_for"] == "these adapters, not the recipe"


def test_the_corrected_interval_agrees_with_the_corrected_p() -> None:
    """Three arms gain 0, 6 and 19 points. A pair is significant after Holm's correction where its interval says so."""
    groups = pa.concat_tables(
        group_rows(arm, step, f"{arm}{step}" if step else "", names(60), "amc", 16, correct)
        for place, (arm, gain) in enumerate({"panel": 0, "thinking": 1, "plain": 3}.items(), start=1)
        for step in (0, 1)
        for correct in [8 + step * gain + 2 * ((np.arange(60) * place + 2 * step) % 5 - 2)]
    )
    rows = [row for row in gains_of(groups).to_pylist() if row["source"] == "all"]
    significant = {(row["arm"], row["other"]): row["p_adjusted"] < 0.05 for row in rows}
    assert {*significant.values()} == {True, False}
    for row in rows:
        assert (not row["corrected_low"] <= 0 <= row["corrected_high"]) is significant[row["arm"], row["other"]]
        assert row["corrected_low"] <= row["low"] and row["high"] <= row["corrected_high"]


def test_where_no_rollout_is_correct_there_is_no_interval() -> None:
    nothing = {"a": "ww", "b": "ww"}
    starts = [rows_of(nothing, arm=arm) for arm in ("panel", "thinking")]
    ends = [rows_of(nothing, arm=arm, step=9, adapter=arm) for arm in ("panel", "thinking")]
    row = told(*starts, *ends)["all"]
    assert (row["estimate"], row["low"], row["p_value"], row["n"]) == (0.0, None, None, 2)
    assert row["reason"] == "no rollout of either arm was correct"


# Held-out curves, gains beside shares, training's series.


def test_held_out_and_gain_by_hand() -> None:
    before = rows_of({p: "c" if p == "a" else "w" for p in "abcd"})
    after = rows_of({p: "w" if p == "d" else "c" for p in "abcd"}, step=40, adapter="training-1")
    rows = curves_of(count_groups(pa.concat_tables([before, after])), None, {}, {}).to_pylist()
    held = {(r["step"], r["source"]): r for r in rows if r["series"] == "heldout"}
    assert (held[0, "all"]["estimate"], held[40, "all"]["estimate"]) == (0.25, 0.75)
    assert held[0, "all"]["method"] == "Wilson on the effective number of problems"
    gain = next(r for r in rows if r["series"] == "gain" and r["source"] == "all")
    assert (gain["estimate"], gain["n"], gain["step"]) == (0.5, 4, 40)
    # differences 0 1 1 0: mean 1/2, variance 1/3; kurtosis 1, so that 1/(5·6)/(1 + 4)^2.5 = .0006 stands for what was not
    # seen; t = .5/sqrt(1/12 + .0006) = 1.7259 with 2·4/(1 − 1 + 17/4) = 1.88 degrees of freedom
    assert (gain["p_value"], gain["p_adjusted"], gain["family"]) == (
        pytest.approx(0.2342, abs=1e-4),
        gain["p_value"],
        "gains: Benjamini-Hochberg of 1",
    )
    assert gain["holds_for"] == "these adapters, not the recipe"


def test_a_lesson_before_all_seeds_is_no_seed() -> None:
    """The start's only adapter is the lesson's: the interval is over the two seeds that were trained from it."""
    parts = [
        part
        for arm in ("panel", "thinking")
        for part in (
            rows_of({"a": "ww", "b": "cw"}, arm=arm, adapter=f"lesson-{arm}"),
            rows_of({"a": "cw", "b": "cw"}, arm=arm, step=9, adapter=f"{arm}-1"),
            rows_of({"a": "cc", "b": "cw"}, arm=arm, step=9, adapter=f"{arm}-2"),
        )
    ]
    curves = curves_of(count_groups(pa.concat_tables(parts)), None, {}, {}).to_pylist()
    found = [told(*parts)["all"], *(r for r in curves if r["series"] == "gain" and r["source"] == "all")]
    assert {(r["seeds"], r["holds_for"]) for r in found} == {(2, "the recipe after these lessons, by 2 seeds")}


def test_a_gain_over_seeds_is_as_wide_as_its_seeds() -> None:
    # every problem gains the same within a seed: +1 under one, 0 under the other, so only drawing seeds varies it
    before = rows_of(dict.fromkeys("abcd", "ww"))
    after = [rows_of(dict.fromkeys("abcd", g), step=2, adapter=name) for g, name in (("cc", "one"), ("ww", "two"))]
    rows = curves_of(count_groups(pa.concat_tables([before, *after])), None, {}, {}).to_pylist()
    gain = next(r for r in rows if r["series"] == "gain" and r["source"] == "all")
    # variance of the seeds' means 1/2, over 2 seeds 1/4, so an error of 2 on the logit of 1/2; t with 1 degree of freedom
    # is 12.7: of the seeds anything from 0 to 1. That no problem differs adds 1/(5·6) with 3: √(.5² + 3.182²/30) = .767
    assert (gain["estimate"], gain["high"], gain["seeds"]) == (0.5, 1.0, 2)
    assert gain["low"] == pytest.approx(0.5 - 0.7665, abs=1e-3)
    # at p = .36: t is 1.59 with 1 degree of freedom, 3.2 logits or .46, and 1.08 with 3; √(.46² + 1.08²/30) = .5
    assert gain["p_value"] == pytest.approx(0.36, abs=0.005)
    assert gain["method"] == "t over problems and seeds"


# Interquartile mean and probability of improvement over seeds, by hand and on made-up trainings.


def trained(arm: str, chances: list[float], seed: int, adapter: str = "") -> list[pa.Table]:
    """A group of 8 of each of 20 problems, by seed; sources alternate."""
    rng, source = np.random.default_rng(seed), ["aime", "amc"] * 10
    return [
        group_rows(arm, 9, f"{adapter or arm}{s}", names(20), source, 8, rng.binomial(8, chance, 20))
        for s, chance in enumerate(chances)
    ]


def rows_over_seeds(parts: list[pa.Table]) -> list[dict[str, Any]]:
    return over_seeds_of(pa.concat_tables(parts), 0).to_pylist()


def test_the_interquartile_mean_of_few_problems_near_an_edge_is_covered() -> None:
    rng, covered = np.random.default_rng(7), []
    for _ in range(120):
        chances = [rng.beta(0.06, 1.94, 10) for _ in range(3)]
        parts = [rng.binomial(8, chance_P, (3, 10)) / 8 for chance_P in chances]
        _, low, high = over_seeds_and_sources(parts, 0)
        covered.append(low <= 0.03 <= high)
    assert np.mean(covered) >= 0.92


def test_the_better_recipe_improves_on_the_other() -> None:
    rows = rows_over_seeds(trained("a", [0.7] * 5, 2) + trained("b", [0.3] * 5, 3))
    rows = [r for r in rows if r["metric"] == "probability of improvement"]
    assert [r["source"] for r in rows] == ["all", "aime", "amc"]
    assert rows[0]["estimate"] == 1.0 and 0.5 < rows[0]["low"] < 1.0 == rows[0]["high"]
    said = [r["reason"] for r in rows_over_seeds(trained("a", [0.7] * 2, 2) + trained("b", [0.3] * 2, 3))]
    assert said[0] == "2 seeds: an interval of this wants 3" and said[-1] == "2 seeds: an interval of this wants 5"


def test_arms_of_the_same_adapters_are_set_against_each_other_seed_by_seed() -> None:
    """Every seed is better under the first arm by as much, and seeds differ by more than that."""
    chances = [0.3, 0.4, 0.5, 0.6, 0.7]
    apart, paired = (
        next(
            r
            for r in rows_over_seeds(trained("a", [c + 0.1 for c in chances], 2, name) + trained("b", chances, 3, name))
            if r["source"] == "amc" and r["other"]
        )
        for name in ("", "t")
    )
    assert apart["estimate"] < 0.9 and apart["holds_for"].startswith("new seeds of both recipes")
    assert paired["estimate"] >= 0.9 and paired["holds_for"] == "new seeds, each under both arms, on these problems"
    assert improvement_of_pairs(np.array([2.0, 2, 2, 2, 1]), np.array([1.0, 1, 1, 2, 2]))[0] == pytest.approx(0.7)


@pytest.mark.parametrize(("effect", "truth"), [(0.0, 0.5), (1.0, 0.7602), (2.5, 0.9615)])
def test_the_chance_of_improvement_is_covered(effect: float, truth: float) -> None:
    rng = np.random.default_rng(4)
    found = [improvement(rng.normal(effect, 1, 5), rng.normal(0, 1, 5)) for _ in range(200)]
    assert np.mean([low <= truth <= high for _, low, high in found]) >= 0.9


# Objectives compared, by hand and where nothing differs.


NAMES = ["pass@1"]


def policy(*seeds: Sequence[float] | np.ndarray, trained: int = 0) -> Seeded:
    """Of pass@1 by seed and problem. trained: the number of its first adapter."""
    values_SP = np.array(seeds)
    cluster_SP = np.tile(np.arange(values_SP.shape[1]), (len(seeds), 1))
    values_SPV = np.stack([values_SP, cluster_SP], axis=2)
    return Seeded(values_SPV, np.arange(values_SP.shape[1]), trained > 0, np.arange(len(seeds)) + trained)


def test_metrics_of_a_problem_by_hand() -> None:
    """Of 16: one right way seven times, another once, one wrong answer eight times. Among 8 the first way is missed with
    chance C(9, 8)/C(16, 8), the second with C(15, 8)/C(16, 8) = 1/2, and that answer with C(8, 8)/C(16, 8)."""
    traces = [*["1+1=2."] * 7, "3-1=2.", *["hm"] * 8]
    found = values_of([True] * 8 + [False] * 8, [0] * 8 + [1] * 8, traces)
    assert found["pass@1"] == 0.5 and found["pass@8"] == pytest.approx(1 - 1 / 12870)
    assert found["distinct answers among 8"] == pytest.approx(2 * (1 - 1 / 12870))
    assert found["right ways among 8"] == pytest.approx(1 - 9 / 12870 + 0.5)


def test_changes_and_what_is_more_than_the_baselines() -> None:
    start = policy([0.0, 0.0, 0.5, 0.5])
    ends = {BASELINE: policy([0.5, 0.0, 0.5, 1.0], trained=1), "other": policy([1.0, 0.0, 1.0, 1.0], trained=2)}
    own, other = compared(NAMES, start, ends)
    assert (own["before"], own["after"], own["change"]) == (0.25, 0.5, 0.25) and "over_baseline" not in own
    assert (other["change"], other["over_baseline"]) == (0.5, 0.25)
    assert other["over_low"] < 0.25 < other["over_high"] and 0 < other["p_value"] < 1
    assert (own["seeds"], own["n"]) == (1, 4)
    assert own["after_low"] < 0.5 < own["after_high"] and "detectable" not in own
    assert other["detectable"] > other["over_high"] - 0.25  # a test needs more than half of its interval

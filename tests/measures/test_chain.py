"""The chain of the hypothesis on made-up studies: found where it is, not found where difficulty alone moves both."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t
from statsmodels.regression.mixed_linear_model import MixedLM

from storage.artifacts.schemas import Bands
from storage.estimates import band
from tasks.domain.statistics.regression import MIXED, between_groups, slope
from tasks.measures.chain import LINKS, chain_of
from tests.measures.further_studies import chain_studies
from tests.measures.simulated import group_rows, names, sigmoid


def study(problems: int, effect: float, seed: int = 0) -> tuple[pa.Table, pa.Table, pa.Table]:
    """(groups, bands, diversity) of two arms and two seeds: diversity follows difficulty, and adds `effect` to a
    problem's gain for each of its own standard deviations."""
    return chain_studies(problems, 1, 2, effect, seed, by_seed=0.0)


def test_a_dose_that_works_is_found_and_its_thirds_are_ordered() -> None:
    rows = chain_of(*study(120, 0.08)).to_pylist()
    found = {r["metric"]: r for r in rows if r["source"] == "all" and r["metric"] in LINKS}
    gain = found["diversity to gain"]
    assert gain["low"] < 0.08 * 0.95 < gain["high"] and gain["p_adjusted"] < 0.01
    assert (gain["n"], gain["problems"], gain["seeds"]) == (240, 120, 2)
    assert gain["holds_for"] == "the recipe, by 2 seeds"
    doses = [r["estimate"] for r in rows if r["source"] == "all" and r["metric"] == "gain by dose"]
    assert doses == sorted(doses) and len(doses) == 3
    assert [r["arm"] for r in rows if r["metric"] == "by source"] == ["a", "b"]


def test_what_difficulty_alone_moves_is_rarely_called_an_effect() -> None:
    """A gain that is the same for all, and a diversity that follows difficulty: p below .05 in about one of twenty."""
    found = [
        next(r for r in chain_of(*study(60, 0.0, seed)).to_pylist() if r["metric"] == "diversity to gain")
        for seed in range(20)
    ]
    assert sum(r["p_value"] < 0.05 for r in found) <= 4
    assert np.mean([r["low"] <= 0 <= r["high"] for r in found]) >= 0.8


def test_a_source_that_is_more_diverse_and_gains_more_does_not_turn_the_slope_round() -> None:
    """Within either source a more diverse problem gains less; the more diverse source gains .25 more. Before, the slope of
    both together was above 0 in 98 % of studies (Simpson's paradox)."""
    above = 0
    for seed in range(10):
        rng, n = np.random.default_rng(seed), 100
        source, problem, second = np.repeat(["x", "y"], n // 2), names(n), np.repeat([0.0, 1.0], n // 2)
        easy, groups, bands, spread = rng.normal(-0.5, 1.2, n), [], [], []
        for arm in "ab":
            own, start = rng.normal(size=n), sigmoid(easy + rng.normal(0, 0.3, n))
            first, about = rng.binomial(8, start), {"problem_id": problem, "source": source, "arm": [arm] * n}
            counted = {"group_size": pa.array([8] * n, pa.int32()), "num_correct": pa.array(first, pa.int32())}
            bands.append(pa.table(about | counted | {"band": [band(int(c), 8) for c in first]}).cast(Bands.schema))
            value = {"diversity": 0.2 - 0.15 * start + 0.03 * own + 0.08 * second, "window": ["whole"] * n}
            spread.append(pa.table(about | value | {"step": pa.array([0] * n, pa.int32())}))
            groups.append(group_rows(arm, 0, "", problem, source, 16, rng.binomial(16, start)))
            after = np.clip(start + 0.1 - 0.03 * own + 0.25 * second, 0, 1)
            groups.append(group_rows(arm, 9, f"{arm}0", problem, source, 16, rng.binomial(16, after)))
        joined = pa.concat_tables(groups)
        joined = joined.append_column("cluster", joined["problem_id"])
        found = chain_of(joined, pa.concat_tables(bands), pa.concat_tables(spread)).to_pylist()
        [row] = [r for r in found if (r["source"], r["metric"]) == ("all", "diversity to gain")]
        above += row["low"] > 0
        assert row["estimate"] < 0.01
    assert above == 0


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_a_slope_is_what_statsmodels_finds_by_its_own_search(spread: float) -> None:
    rng = np.random.default_rng(6)
    group, x = np.repeat(np.arange(40), [1, 3] * 20), rng.normal(size=80)
    y = 0.5 * x + spread * rng.normal(size=40)[group] + rng.normal(size=80)
    design = np.column_stack([x, np.ones(80)])
    searched: Any = MixedLM(y, design, groups=group).fit(reml=True, method=["powell"], xtol=1e-10, ftol=1e-12)
    assert between_groups(y, design, group) == pytest.approx(searched.cov_re[0, 0] / searched.scale, abs=1e-3)
    one = slope(y[None], [x], group)
    assert one["method"] == MIXED
    assert one["estimate"] == pytest.approx(searched.fe_params[0], abs=1e-4)
    half = float(t.ppf(0.975, 38)) * searched.bse_fe[0]
    assert one["high"] - one["estimate"] == pytest.approx(half, rel=1e-3)

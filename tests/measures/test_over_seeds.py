"""Interquartile mean and probability of improvement over seeds, by hand and on made-up trainings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.measures.over_seeds import improvement, improvement_of_pairs, over_seeds_and_sources, over_seeds_of


def trained(arm: str, chances: list[float], seed: int, problems: int = 20) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"arm": arm, "step": 9, "adapter": f"{arm}{s}", "seed": s, "problem_id": f"{i:03d}"}
        | {"source": "amc" if i % 2 else "aime", "group_size": 8, "num_correct": int(rng.binomial(8, chance))}
        | {"num_tokens": 80}
        for s, chance in enumerate(chances)
        for i in range(problems)
    ]


def test_a_broken_seed_moves_the_mean_and_not_the_interquartile_mean() -> None:
    rows = over_seeds_of(pa.Table.from_pylist(trained("a", [0.6, 0.6, 0.6, 0.6, 0.0], 1)), 0).to_pylist()
    row, spread = rows
    assert spread["metric"] == "SD between seeds" and spread["low"] < spread["estimate"] < spread["high"]
    assert row["mean"] < 0.5 < row["low"] < row["estimate"] < row["high"] or row["estimate"] - row["mean"] > 0.08
    assert (row["seeds"], row["n"], row["holds_for"]) == (5, 20, "the recipe, by 5 seeds")


def test_the_interquartile_mean_of_few_problems_near_an_edge_is_covered() -> None:
    rng, covered = np.random.default_rng(7), []
    for _ in range(120):
        chances = [rng.beta(0.06, 1.94, 10) for _ in range(3)]
        parts = [rng.binomial(8, chance_P, (3, 10)) / 8 for chance_P in chances]
        _, low, high = over_seeds_and_sources(parts, 0)
        covered.append(low <= 0.03 <= high)
    assert np.mean(covered) >= 0.92


def test_the_better_recipe_improves_on_the_other() -> None:
    table = pa.Table.from_pylist(trained("a", [0.7] * 5, 2) + trained("b", [0.3] * 5, 3))
    rows = [r for r in over_seeds_of(table, 0).to_pylist() if r["metric"] == "probability of improvement"]
    assert [r["source"] for r in rows] == ["all", "aime", "amc"]
    assert rows[0]["estimate"] == 1.0 and 0.5 < rows[0]["low"] < 1.0 == rows[0]["high"]
    few = pa.Table.from_pylist(trained("a", [0.7] * 2, 2) + trained("b", [0.3] * 2, 3))
    said = [r["reason"] for r in over_seeds_of(few, 0).to_pylist()]
    assert said[0] == "2 seeds: an interval of this wants 3" and said[-1] == "2 seeds: an interval of this wants 5"


def test_arms_of_the_same_adapters_are_set_against_each_other_seed_by_seed() -> None:
    """Every seed is better under the first arm by as much, and seeds differ by more than that."""
    chances = [0.3, 0.4, 0.5, 0.6, 0.7]
    own = trained("a", [c + 0.1 for c in chances], 2) + trained("b", chances, 2)
    shared = [row | {"adapter": f"t{row['adapter'][1:]}"} for row in own]
    apart, paired = (
        next(r for r in over_seeds_of(pa.Table.from_pylist(rows), 0).to_pylist() if r["source"] == "amc" and r["other"])
        for rows in (own, shared)
    )
    assert apart["estimate"] < 0.9 and apart["holds_for"].startswith("new seeds of both recipes")
    assert paired["estimate"] >= 0.9 and paired["holds_for"] == "new seeds, each under both arms, on these problems"
    assert improvement_of_pairs(np.array([2.0, 2, 2, 2, 1]), np.array([1.0, 1, 1, 2, 2]))[0] == pytest.approx(0.7)


@pytest.mark.parametrize(("effect", "truth"), [(0.0, 0.5), (1.0, 0.7602), (2.5, 0.9615)])
def test_the_chance_of_improvement_is_covered(effect: float, truth: float) -> None:
    rng = np.random.default_rng(4)
    found = [improvement(rng.normal(effect, 1, 5), rng.normal(0, 1, 5)) for _ in range(200)]
    assert np.mean([low <= truth <= high for _, low, high in found]) >= 0.9

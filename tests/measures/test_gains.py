"""The difference of gains between arms, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tasks.measures.curves import gains_of
from tasks.measures.groups import count_groups

Make = Callable[..., pa.Table]


def told(*parts: pa.Table) -> dict[str, dict]:
    return {r["source"]: r for r in gains_of(count_groups(pa.concat_tables(parts))).to_pylist()}


def test_one_seed_by_hand(rollouts: Make) -> None:
    row = told(
        rollouts({"a": "ww", "b": "ww", "c": "cw"}),
        rollouts({"a": "cc", "b": "cw", "c": "cw"}, step=9, adapter="p"),
        rollouts({"a": "ww", "b": "ww", "c": "ww"}, arm="thinking"),
        rollouts({"a": "ww", "b": "cw", "c": "ww"}, arm="thinking", step=9, adapter="t"),
    )["all"]
    # gains 1 1/2 0 and 0 1/2 0: differences 1 0 0, variance 1/3; kurtosis 1.5, so that 4/(4·5)/(1 + 2)^2.5 = .0128 stands for
    # what was not seen; t = (1/3)/sqrt(1/9 + .0128) = .9468 with 6/(1.5 − 1 + 17/3) = .97 and so 1 degree of freedom
    error = (1 / 9 + 4 / 20 / 3**2.5) ** 0.5
    assert (row["arm"], row["other"], row["step"], row["n"], row["seeds"]) == ("panel", "thinking", 9, 3, 1)
    assert (row["gain"], row["other_gain"], row["estimate"]) == pytest.approx((0.5, 1 / 6, 1 / 3))
    assert row["p_value"] == row["p_adjusted"] == pytest.approx(0.5174, abs=1e-4)
    assert (row["low"], row["high"]) == pytest.approx((-2.0, 2.0))  # 1/3 ± 12.706 · error
    assert (row["sequence_low"], row["sequence_high"]) == (-2.0, 2.0)
    # noncentral t with 1 degree of freedom has 80 % above 12.706 at 16.334: no difference of gains is so large
    assert 16.334 * error > 2 and row["detectable"] is None
    assert row["family"] == "difference of gains: Holm of 1"
    assert row["holds_for"] == "these adapters, not the recipe"


def test_arms_of_the_same_adapters_are_paired_by_seed(rollouts: Make) -> None:
    """What a seed does to both falls out of their difference; of adapters of their own it does not."""
    problems = [f"p{i}" for i in range(50)]
    start = [rollouts(dict.fromkeys(problems, "cwww"), arm=arm) for arm in ("panel", "thinking")]

    def row(*adapters: str) -> dict:
        ends = [
            rollouts(dict.fromkeys(problems, letters), arm=arm, step=5, adapter=f"{adapter}{i}")
            for arm, adapter in zip(("panel", "thinking"), adapters, strict=True)
            for i, letters in enumerate(("cccc", "cccw", "ccww"))
        ]
        return told(*start, *ends)["all"]

    same, other = row("p", "p"), row("p", "t")
    assert same["estimate"] == other["estimate"] == 0.0 and same["seeds"] == other["seeds"] == 3
    assert other["high"] - other["low"] > 2 * (same["high"] - same["low"]) > 0
    assert same["sequence_low"] < same["low"] and other["sequence_high"] > other["high"]


def test_a_problem_asked_twice_in_other_words_counts_once(rollouts: Make) -> None:
    after, other = {"a": "cc", "b": "cw", "c": "ww"}, {"a": "ww", "b": "cw", "c": "ww"}

    def asked(copies: int) -> pa.Table:
        parts = []
        for i in range(copies):
            for arm, letters in (("panel", after), ("thinking", other)):
                named = {f"{p}{i}": found for p, found in letters.items()}
                parts += [rollouts(dict.fromkeys(named, "ww"), arm=arm), rollouts(named, arm=arm, step=9, adapter=arm)]
        groups = count_groups(pa.concat_tables(parts))
        return groups.append_column("cluster", pa.array([p[0] for p in groups["problem_id"].to_pylist()]))

    once, twice = (next(r for r in gains_of(asked(n)).to_pylist() if r["source"] == "all") for n in (1, 2))
    assert (once["n"], once["clusters"], twice["n"], twice["clusters"]) == (3, 3, 6, 3)
    for figure in ("estimate", "low", "high", "p_value", "detectable"):
        assert once[figure] == pytest.approx(twice[figure])

"""Held-out curves, gains beside shares, training's series."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tasks.measures.curves import curves_of, training_rows, with_shares
from tasks.measures.groups import count_groups

Make = Callable[..., pa.Table]


def test_held_out_and_gain_by_hand(rollouts: Make) -> None:
    before = rollouts({p: "c" if p == "a" else "w" for p in "abcd"})
    after = rollouts({p: "w" if p == "d" else "c" for p in "abcd"}, step=40, adapter="training-1")
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


def test_seeds_are_combined_by_problem(rollouts: Make) -> None:
    tables = [
        rollouts({"a": "cc", "b": "ww"}, step=2, adapter="one"),
        rollouts({"a": "ww", "b": "ww"}, step=2, adapter="two"),
    ]
    rows = curves_of(count_groups(pa.concat_tables(tables)), None, {}, {}).to_pylist()
    row = next(r for r in rows if r["series"] == "heldout" and r["source"] == "all")
    held_method = "Wilson on the effective number of problems"
    assert row["holds_for"] == "the recipe, by 2 seeds"
    assert (row["estimate"], row["seeds"], row["n"], row["rollouts"], row["method"]) == (0.25, 2, 2, 8, held_method)


def test_a_gain_over_seeds_is_as_wide_as_its_seeds(rollouts: Make) -> None:
    # every problem gains the same within a seed: +1 under one, 0 under the other, so only drawing seeds varies it
    before = rollouts(dict.fromkeys("abcd", "ww"))
    after = [rollouts(dict.fromkeys("abcd", g), step=2, adapter=name) for g, name in (("cc", "one"), ("ww", "two"))]
    rows = curves_of(count_groups(pa.concat_tables([before, *after])), None, {}, {}).to_pylist()
    gain = next(r for r in rows if r["series"] == "gain" and r["source"] == "all")
    # variance of the seeds' means 1/2, over 2 seeds 1/4, so an error of 2 on the logit of 1/2; t with 1 degree of freedom
    # is 12.7: of the seeds anything from 0 to 1. That no problem differs adds 1/(5·6) with 3: √(.5² + 3.182²/30) = .767
    assert (gain["estimate"], gain["high"], gain["seeds"]) == (0.5, 1.0, 2)
    assert gain["low"] == pytest.approx(0.5 - 0.7665, abs=1e-3)
    # at p = .36: t is 1.59 with 1 degree of freedom, 3.2 logits or .46, and 1.08 with 3; √(.46² + 1.08²/30) = .5
    assert gain["p_value"] == pytest.approx(0.36, abs=0.005)
    assert gain["method"] == "t over problems and seeds"


def test_gains_stand_beside_what_was_trained_on() -> None:
    rows = [{"series": "gain", "arm": "panel", "source": "amc"}, {"series": "gain", "arm": "thinking", "source": "amc"}]
    a, b = with_shares(rows, {"panel": {"amc": 1, "aime": 3}}, {"panel": {"amc": 1, "aime": 1}})
    assert (a["training_share"], a["exposure_share"]) == (0.25, 0.5)
    assert (b["training_share"], b["exposure_share"]) == (None, None)


def test_training_series_keep_nulls_with_their_reason() -> None:
    bands = {"variance": [3, 5, 8], "all_zero": [4, 2, 0], "all_one": [1, 1, 0]}
    steps = pa.table({"arm": ["panel"] * 3, "step": [1, 1, 2], "entropy": [0.4, 0.6, None]} | bands)
    found = {(r["metric"], r["step"]): r for r in training_rows(steps)}
    assert (found["entropy", 1]["estimate"], found["entropy", 1]["low"], found["entropy", 1]["seeds"]) == (0.5, 0.4, 2)
    assert (found["entropy", 2]["estimate"], found["entropy", 2]["reason"]) == (None, "not measured at this step")
    assert found["variance", 1]["estimate"] == pytest.approx(4.0)
    assert (found["variance_share", 1]["estimate"], found["variance_share", 2]["estimate"]) == (0.5, 1.0)

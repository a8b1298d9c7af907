"""G-Pass@k and re-screening: by hand, and on made-up policies of known truth."""

from typing import Any

import pytest

from tasks.domain.policies import Sampling
from tasks.measures.pass_at_k import g_pass_of
from tasks.measures.rescreening import HALVES, SECOND, rescreening_of
from tests.measures.further_studies import screenings
from tests.measures.simulated import group_rows, names


def test_g_pass_lies_between_pass_at_k_and_pass_all_k() -> None:
    rows = g_pass_of(group_rows("a", 0, "", names(3), "s", 4, [4, 2, 0]), (1, 4, 8)).to_pylist()
    mine = {r["threshold"]: r for r in rows if r["source"] == "all" and r["k"] == 4 and r["metric"] == "G-Pass@k"}
    assert [r["wanted"] for r in mine.values()] == [2, 3]
    assert [r["estimate"] for r in mine.values()] == pytest.approx([2 / 3, 1 / 3])
    assert all(0 <= r["low"] < r["estimate"] < r["high"] <= 1 for r in mine.values())
    (mean,) = [r for r in rows if (r["source"], r["metric"], r["k"]) == ("all", "mG-Pass@k", 4)]
    assert mean["estimate"] == pytest.approx(1 / 3)  # at 3 and 4 of 4
    assert [r["reason"] for r in rows if r["k"] == 8] == ["a problem has fewer than k = 8 rollouts"] * 8
    assert not [r for r in rows if r["k"] == 1]


def test_a_second_draw_agrees_as_often_as_the_first_one_foresees() -> None:
    bands, again = screenings("ordinary", 300, 1, 5)
    rows = rescreening_of(bands, again.slice(0, 150)).to_pylist()
    found = {(r["draw"], r["metric"], r["band"]): r for r in rows}
    assert len(found) == len(rows) == 8
    for row in rows:
        if row["n"] > 10:  # the problems are as the fit takes them to be
            assert row["low"] < row["predicted"] < row["high"], row
    assert (found[SECOND, "agreement", None]["n"], found[HALVES, "agreement", None]["n"]) == (150, 300)
    assert found[HALVES, "agreement", None]["group_size"] == 4
    assert found[SECOND, "mislabelled", "all_zero"]["estimate"] < 0.3


def test_only_other_rollouts_of_the_same_policy_are_a_second_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.measures import rescreening

    screened = {"policy": {"arm": "a", "adapter": None, "step": 0, "seed": 0}, "sampling": {"seed": 1, "max_tokens": 8}}
    asked: dict[str, Any] = {
        "screening": screened,
        "same rollouts": screened,
        "another seed": screened | {"sampling": {"seed": 3, "max_tokens": 8}},
        "longer": screened | {"sampling": {"seed": 3, "max_tokens": 16}},
        "trained": screened | {"policy": {"arm": "a", "adapter": "t", "step": 9, "seed": 1}, "sampling": {"seed": 3}},
        "imported": None,
    }
    monkeypatch.setattr(rescreening, "sampled_with", asked.__getitem__)
    assert rescreening.sampled_again("screening", tuple(asked)) == ["another seed"]  # type: ignore[arg-type]
    assert Sampling(max_tokens=8, seed=3).seed == 3  # the field that is told apart has this name

"""Search within budgets: values written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.kinds import Searches
from tasks.measures.search import COLUMNS, ORACLE, PASS_AT_1, contrasts_of, curves_of, within_budgets

BUDGETS = (10, 20, 40)


def nodes(searches: dict[tuple[str, str, str], list[tuple[int, bool, bool]]]) -> pa.Table:
    """(arm, method, problem) → of each round its tokens, whether its rollout is right, whether the answer then is."""
    fixed = {"adapter": None, "step": 0, "cut": None, "num_prompt_tokens": 2, "num_scored_tokens": 0}
    rows: list[dict[str, Any]] = [
        {"problem_id": problem, "arm": arm, "method": method, "round": place, "num_tokens": tokens - 2}
        | {"correct": right, "chosen_correct": chosen}
        | fixed
        for (arm, method, problem), rounds in searches.items()
        for place, (tokens, right, chosen) in enumerate(rounds)
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema([Searches.schema.field(name) for name in COLUMNS]))
    return table.append_column("cluster", table["problem_id"])


#: p: wrong after 8 tokens, right after 18. q: right after 15, wrong after 30; its first rollout does not fit 10 tokens.
ONE_ARM = {
    ("panel", "first", "p"): [(8, False, False), (10, True, False)],
    ("panel", "first", "q"): [(15, True, True), (15, False, True)],
    ("panel", "majority", "p"): [(8, False, False), (10, True, True)],
    ("panel", "majority", "q"): [(15, True, True), (15, False, False)],
}


def estimates(table: pa.Table, **where: object) -> list[float]:
    return [r["estimate"] for r in table.to_pylist() if all(r[k] == v for k, v in where.items())]


def test_curves_areas_and_slopes_by_hand() -> None:
    table = curves_of(within_budgets(nodes(ONE_ARM), BUDGETS), BUDGETS)
    of = {"metric": "accuracy"}
    assert estimates(table, **of, method="majority") == [0.0, 1.0, 0.5]
    assert estimates(table, **of, method="first") == [0.0, 0.5, 0.5]
    assert estimates(table, **of, method=ORACLE) == [0.0, 1.0, 1.0]
    assert estimates(table, **of, method=PASS_AT_1) == [0.25, 0.5, 0.5]
    # p is right from 18 to 40, q from 15 to 30: (22 + 15) / 2 / 40
    assert estimates(table, metric="area", method="majority") == [pytest.approx(0.4625)]
    assert estimates(table, metric="slope", method="majority") == [pytest.approx(0.25)]
    assert {r["series"] for r in table.to_pylist() if r["method"] == ORACLE} == {"ceiling"}
    spent = [(r["tokens"], r["rollouts"]) for r in table.to_pylist() if r["method"] == "majority" and r["tokens"]]
    assert spent == [(4.0, 0.5), (16.5, 1.5), (24.0, 2.0)]


def test_methods_and_arms_are_paired_by_problem() -> None:
    other = {("thinking", method, problem): rounds for (_, method, problem), rounds in ONE_ARM.items()}
    other["thinking", "majority", "q"] = [(15, True, True), (15, False, True)]
    table = contrasts_of(within_budgets(nodes(ONE_ARM | other), BUDGETS), BUDGETS)
    rows = [r for r in table.to_pylist() if r["budget"] == 40 and r["metric"] == "accuracy"]
    methods = {(r["arm"], r["method"], r["other_method"]): r["estimate"] for r in rows if r["arm"] == r["other"]}
    assert methods == {("panel", "first", "majority"): 0.0, ("thinking", "first", "majority"): -0.5}
    arms = {r["method"]: r["estimate"] for r in rows if r["arm"] != r["other"]}
    assert arms == {"first": 0.0, "majority": -0.5, ORACLE: 0.0, PASS_AT_1: 0.0}
    slopes = {
        r["method"]: r["estimate"] for r in table.to_pylist() if r["metric"] == "slope" and r["arm"] != r["other"]
    }
    assert slopes == {"majority": pytest.approx(-0.25), ORACLE: pytest.approx(0.0)}
    adjusted = [r for r in table.to_pylist() if r["p_value"] is not None]
    assert adjusted and all(r["p_adjusted"] >= r["p_value"] and r["family"] for r in adjusted)


def test_pass_at_1_is_the_chance_of_the_first_whatever_ended_the_drawing() -> None:
    """Right rollouts take 10 tokens, wrong ones 40, half are right, and a budget of 40 ends the drawing after the first
    wrong one: the mean of each problem's would be 0.32. Within five standard errors of 2000 problems."""
    rng = np.random.default_rng(0)
    searches = {}
    for problem in range(2000):
        rounds, spent = list[tuple[int, bool, bool]](), 0
        while spent < 40:
            right = bool(rng.random() < 0.5)
            rounds.append((10 if right else 40, right, rounds[0][1] if rounds else right))
            spent += rounds[-1][0]
        searches["panel", "first", f"p{problem:04}"] = rounds
    table = curves_of(within_budgets(nodes(searches), (40,)), (40,))
    [found] = estimates(table, metric="accuracy", method=PASS_AT_1)
    assert abs(found - 0.5) < 5 * (0.25 / 2000) ** 0.5


def test_the_best_method_is_chosen_on_other_problems() -> None:
    """Ten methods that guess alike, of 60 problems each: the best one's rate is too high, that of choosing is not."""
    rng, naive, honest = np.random.default_rng(0), list[float](), list[float]()
    for _ in range(20):
        right = rng.random((10, 60)) < 0.5
        searches = {
            ("panel", f"guess{m}", f"p{p:02}"): [(10, bool(right[m, p]), bool(right[m, p]))]
            for m in range(10)
            for p in range(60)
        }
        table = curves_of(within_budgets(nodes(searches), (40,)), (40,))
        naive.append(max(estimates(table, metric="accuracy")))
        honest += estimates(table, metric="best")
    assert np.mean(naive) > 0.57
    assert abs(np.mean(honest) - 0.5) < 5 * np.std(honest) / 20**0.5 < 0.1

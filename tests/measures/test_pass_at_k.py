"""pass@k tables: worked values, nulls where undefined, contrasts on common problems."""

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Searches
from tasks.domain.policies import Sampling
from tasks.domain.statistics.difficulty import rollouts_until_decided
from tasks.domain.statistics.means import ONE_PROBLEM
from tasks.embedding import embedded
from tasks.measures import rescreening
from tasks.measures.diversity import ceilings_of
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import contrasts_of, g_pass_of, passk_of, solved_by_of, votes_of
from tasks.measures.rescreening import HALVES, SECOND, rescreening_of
from tasks.measures.search import COLUMNS, ORACLE, PASS_AT_1, curves_of, within_budgets
from tasks.measures.tokens import tokens_of
from tests.measures.conftest import classed_by_letter, row_of, rows_of
from tests.measures.further_studies import screenings
from tests.measures.simulated import group_rows, names


def both(*parts: pa.Table) -> pa.Table:
    return count_groups(pa.concat_tables(parts))


def test_two_problems_by_hand() -> None:
    table = passk_of(count_groups(rows_of({"a": "cwww", "b": "ccww"})), (1, 2, 4), 500, 0)
    # k = 1: (1/4 + 2/4)/2; k = 2: a misses 3 of 6 pairs, b misses 1 of 6; k = 4: certain
    for metric, k, expected in (
        ("pass@k", 1, 0.375),
        ("pass@k", 2, (1 / 2 + 5 / 6) / 2),
        ("pass@k", 4, 1.0),
        ("pass^k", 2, (0 + 1 / 6) / 2),
    ):
        row = row_of(table, metric=metric, source="all", k=k)
        assert row["estimate"] == pytest.approx(expected) and row["low"] <= row["estimate"] <= row["high"]
    row = row_of(table, metric="pass@k", source="all", k=1)
    assert (row["n"], row["rollouts"], row["tokens"]) == (2, 4, 25.0)


def test_gap_and_closure_by_hand() -> None:
    groups = both(rows_of({"a": "cwww", "b": "cwww", "x": "cccc"}), rows_of({"a": "cccc", "b": "ccww"}, arm="thinking"))
    table = contrasts_of(groups, (1, 4), 500, 0)
    for metric, k, expected in (("gap", 1, 0.25 - 0.75), ("gap", 4, 0.0), ("closure", 4, 0.5)):
        row = row_of(table, metric=metric, source="all", k=k)
        assert (row["estimate"], row["n"]) == (pytest.approx(expected), 2)
    assert row_of(table, metric="monotone", source="all")["reason"] == "narrows at every k"


def test_gap_at_equal_tokens_by_hand() -> None:
    # a rollout of thinking costs two of panel: its k = 1 is held against panel's 2, its 2 against 4, its 4 against none
    groups = both(rows_of({"a": "cwww"}), rows_of({"a": "cwww"}, arm="thinking", tokens=20))
    rows = [r for r in contrasts_of(groups, (1, 2, 4), 100, 0).to_pylist() if r["source"] == "all"]
    assert [(r["k"], r["estimate"], r["reason"]) for r in rows if r["metric"] == "equal_tokens"] == [
        (2, pytest.approx(0.5 - 0.25), f"50 tokens; other at k = 1; {ONE_PROBLEM}"),
        (4, pytest.approx(1.0 - 0.5), f"100 tokens; other at k = 2; {ONE_PROBLEM}"),
        (4, None, "4 of the dearer cost more than all 4 of the other on 1 of 1 problems"),
    ]


def test_who_solved_what() -> None:
    first, second = {"a": "cw", "b": "ww", "d": "cc", "e": "ww"}, {"a": "cc", "b": "cw", "d": "ww", "e": "ww"}
    rows = solved_by_of(both(rows_of(first), rows_of(second, arm="thinking"))).to_pylist()
    found = {r["problem_id"]: r["solved_by"] for r in rows}
    assert found == {"a": "both", "b": "other_only", "d": "arm_only", "e": "neither"}
    assert all(r["equal_n"] for r in rows)


# Token costs and paired lengths, by hand.


def test_tokens_per_correct_and_accuracy_of_answers_by_hand() -> None:
    # tokens are 10, 20, … along a group: a has 30 for 1 correct, b has 30 for 2
    row = row_of(tokens_of(rows_of({"a": "cw", "b": "cc"})), metric="tokens_per_correct", source="all")
    assert (row["num_tokens"], row["num_correct"], row["estimate"], row["mean"]) == (60, 3, 20.0, 15.0)
    assert row["low"] <= 20.0 <= row["high"]
    answered = tokens_of(rows_of({"a": "cwtt", "b": "cccc", "d": "tttt"}))
    row = row_of(answered, metric="accuracy_answered", source="all")
    assert row["estimate"] == pytest.approx(5 / 6) and 0 < row["low"] < 5 / 6 < row["high"] <= 1
    none = row_of(tokens_of(rows_of({"a": "tt"})), metric="accuracy_answered", source="all")
    assert (none["estimate"], none["reason"]) == (None, "no rollout gave an answer")


def test_the_cost_of_one_arm_over_another_by_hand() -> None:
    """Six problems of 30 tokens, of 9 correct answers in all, against six of 45, of 7."""
    first, second = {"a": "cw", "b": "cc", "d": "cw", "e": "cc", "f": "cw", "g": "cc"}, {"a": "cc"}
    other = rows_of(dict.fromkeys("abdefg", "cw") | second, arm="z", tokens=15)
    ratio = {"metric": "tokens_per_correct_ratio", "source": "all"}
    row = row_of(tokens_of(pa.concat_tables([rows_of(first), other])), **ratio)
    assert (row["arm"], row["other"], row["n"]) == ("panel", "z", 6)
    assert row["estimate"] == pytest.approx((180 / 9) / (270 / 7))
    assert row["low"] < row["estimate"] < row["high"]
    few = [rows_of({"a": "cw", "b": "cc"}), rows_of({"a": "cw", "b": "cw"}, arm="z", tokens=15)]
    row = row_of(tokens_of(pa.concat_tables(few)), **ratio)
    assert (row["low"], row["reason"]) == (None, "fewer than 3 problems' worth of correct answers")


def test_lengths_by_who_is_correct() -> None:
    parts = [rows_of({"a": "cc", "b": "cw"}), rows_of({"a": "cc", "b": "wc"}, arm="thinking", tokens=30)]
    rows = tokens_of(pa.concat_tables(parts)).to_pylist()
    found = {r["bucket"]: r for r in rows if r["metric"] == "bucket" and r["source"] == "all"}
    counts = {bucket: r["n"] for bucket, r in found.items()}
    assert counts == {"all_paired": 2, "arm_only": 1, "both_correct": 1, "other_only": 1}
    correct = found["both_correct"]
    assert (correct["mean"], correct["other_mean"], correct["longer_in"]) == (15.0, 45.0, 1)
    assert correct["ratio_geomean"] == pytest.approx(3)


# maj@k, shortest@k and the shuffled-problem ceiling, by hand; adaptive screening by brute force.


def test_votes_by_hand() -> None:
    # classes 0 0 0 | 1 2 1: the majority of all three is right, and wrong
    table = votes_of([classed_by_letter(rows_of({"a": "ccc", "b": "www"}))], (1, 3, 4), 0)
    assert row_of(table, metric="maj@k", source="all", k=3)["estimate"] == 0.5
    assert row_of(table, metric="shortest@k", source="all", k=1)["estimate"] == 0.5
    row = row_of(table, metric="maj@k", source="all", k=4)
    assert (row["estimate"], row["n"]) == (None, 2) and "fewer than k = 4" in row["reason"]
    likely = classed_by_letter(rows_of({"a": "wcw"}))  # lengths 10, 20, 30
    likely = likely.set_column(likely.column_names.index("logprob_sum"), "logprob_sum", pa.array([-10.0, -2.0, -60.0]))
    table = votes_of([likely], (1, 2, 3), 0)
    for k, expected in ((1, 1 / 3), (2, 2 / 3), (3, 1.0)):  # of three pairs, the two that hold it
        assert row_of(table, metric="likeliest@k", source="all", k=k)["estimate"] == pytest.approx(expected)
    assert row_of(table, metric="shortest@k", source="all", k=3)["estimate"] == 0.0
    unknown = votes_of([classed_by_letter(rows_of({"a": "cc"}))], (1,), 0)
    why = "a problem has fewer than k = 1 rollouts, or one without a log-probability"
    assert row_of(unknown, metric="likeliest@k", source="all")["reason"] == why


@pytest.mark.parametrize("letters", ["cw", "ccw", "ccww", "cwwww", "www"])
def test_stopping_when_decided_against_all_orders(letters: str) -> None:
    def needed(order: tuple[str, ...]) -> int:
        return next((i for i in range(1, len(order) + 1) if len(set(order[:i])) == 2), len(order))

    expected = np.mean([needed(o) for o in permutations(letters)])
    assert rollouts_until_decided(len(letters), letters.count("c")) == pytest.approx(expected)


def test_ceiling_by_hand() -> None:
    # a: two equal vectors; b: two equal ones at right angles to them
    v = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    row = ceilings_of([embedded(rows_of({"a": "cc", "b": "cw"}), v, np.ones(4), "whole")], []).to_pylist()[0]
    assert (row["within"], row["between"], row["position"], row["problems"]) == (0.0, 1.0, 0.0, 2)
    assert (row["floor"], row["reworded"]) == (None, 0)
    alone = ceilings_of([embedded(rows_of({"a": "cc"}), v[:2], np.ones(2), "whole")], []).to_pylist()[0]
    assert (alone["between"], alone["reason"]) == (None, "one problem only")


def test_floor_by_hand() -> None:
    # a's first trace lies at 60 degrees from itself in other words; distance 1/2, as far as its second trace
    table, half = rows_of({"a": "cc", "b": "cw"}), np.array([[0.5, 3**0.5 / 2]], np.float32)
    v = np.array([[1, 0], half[0], [0, -1], [0, -1]], np.float32)
    said, whole = embedded(table.slice(0, 1), half, np.ones(1), "reworded"), embedded(table, v, np.ones(4), "whole")
    rows = ceilings_of([whole, said], [(said, whole)]).to_pylist()
    assert [(r["window"], r["n"], r["reworded"]) for r in rows] == [("whole", 4, 1)]
    assert rows[0]["floor"] == pytest.approx(0.5)
    # within: (1/2 + 0)/2; between: 1, 1, 1 + √3/2 twice; position: (1/4 − 1/2)/(1 + √3/4 − 1/2)
    assert rows[0]["between"] == pytest.approx(1 + 3**0.5 / 4)
    assert rows[0]["position"] == pytest.approx(-0.25 / (0.5 + 3**0.5 / 4))


# Search within budgets: values written out by hand.


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


# G-Pass@k and re-screening: by hand, and on made-up policies of known truth.


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

"""The first screen says what the rows say, in at most 25 words, and of each kind of study its own question."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tasks.report import headline as first_screen

headline = partial(first_screen.headline, study="mine")
Row = dict[str, Any]
PAIR: Row = {
    "arm": "panel",
    "other": "thinking",
    "source": "all",
    "more_gain": 0.001,
    "more_gain_low": -0.056,
    "more_gain_high": 0.058,
    "sequence_low": -0.1,
    "sequence_high": 0.1,
    "p_adjusted": 0.9,
    "p_equivalent_corrected": 0.3,
    "detectable_gain": 0.08,
    "n": 100,
    "seeds": 1,
    "holds_for": "these adapters, not the recipe",
    "reason": None,
}
LEVEL: Row = {"row": "level", "label": "panel", "arm": "panel", "other": None, "before_rate": 0.5, "after_rate": 0.625}
LEVEL |= {"gain": 0.125, "gain_low": 0.05, "gain_high": 0.2, "detectable_gain": None, "holds_for": None, "n": 40}
LEVEL |= {"p_adjusted": None, "budget": 1600, "method": "majority", "tokens": None, "against": "first"}
LEVEL |= {"rollouts": 16.0}
FORM: Row = {"no_answer": 0.99, "invalid_tags": 1.0, "truncated": 0.6, "accuracy": 0.0, "taught": False, "seed": None}
FORM |= {"rollouts": 320, "no_answer_truncated": 0}
ARM: Row = {"arm": "panel", "problems": 50, "variance": 40, "diversity_before": 0.15, "tokens_per_correct": 37.0}
ARM |= {"no_answer": 0.0, "invalid_tags": 0.02, "truncated": 0.0}


def asked(**tables: list[Row]) -> Callable[[str], pa.Table]:
    """Answers of the queries; those that are not given have no row."""
    return lambda name: pa.Table.from_pylist(tables.get(name.removeprefix("report_"), []))


GAIN_OF_10: Row = {"more_gain": -0.1, "more_gain_low": -0.15, "more_gain_high": -0.05, "p_adjusted": 0.001}
UNDECIDED = "Undecided: panel gained 0.1 points more than thinking (95 % interval −5.6 to +5.8)."
ADAPTERS = "100 held-out problems. This holds for these adapters, not the recipe."
FOUND = f"A true difference of 8 points would be found in 4 of 5 such studies. {ADAPTERS}"
TOO_SMALL = "This study is too small to find any difference."
UNKNOWN: Row = {"more_gain_low": None, "more_gain_high": None, "reason": "every problem gains the same"}


@pytest.mark.parametrize(
    ("changed", "verdict", "holds"),
    [
        ({}, UNDECIDED, FOUND),
        (GAIN_OF_10, "thinking gained 10 points more than panel (95 % interval +5.0 to +15.0).", FOUND),
        (
            {"p_equivalent_corrected": 0.01},
            "No difference: panel and thinking gain the same to within 2 points (equivalence test at 5 %).",
            ADAPTERS,
        ),
        ({"detectable_gain": None}, UNDECIDED, f"{TOO_SMALL} {ADAPTERS}"),
        (
            UNKNOWN,
            "Not compared: the difference of panel and thinking has no interval.",
            "every problem gains the same.",
        ),
    ],
)
def test_two_arms(changed: Row, verdict: str, holds: str) -> None:
    found = headline(asked(difference_of_gains=[PAIR | changed]), ())
    assert (found.verdict, found.holds) == (verdict, holds)
    assert len(verdict.split()) <= 25


def test_that_arms_gain_alike_says_little_where_they_solve_little() -> None:
    alike, level = PAIR | {"p_equivalent_corrected": 0.01}, LEVEL | {"before_rate": 0.02, "after_rate": 0.03}
    found = headline(asked(difference_of_gains=[alike], answer_gain=[level]), ())
    assert found.holds == f"All solve less than 10 %: 2 points are much. {ADAPTERS}"


def test_several_arms_are_told_by_the_pair_that_differs() -> None:
    far = {"other": "plain", "more_gain": 0.2, "more_gain_low": 0.1, "more_gain_high": 0.3, "p_adjusted": 0.01}
    found = headline(asked(difference_of_gains=[PAIR, PAIR | far]), ())
    assert found.verdict == "panel gained 20 points more than plain (95 % interval +10.0 to +30.0)."
    assert found.holds.startswith("1 of the 2 pairs of arms is decided.")
    none = headline(asked(difference_of_gains=[PAIR, PAIR | {"other": "plain", "detectable_gain": 0.1016}]), ())
    assert none.verdict.startswith(
        "Undecided for all 2 pairs of arms; the largest difference: panel gained 0.1 points more"
    )
    by_pair = "A true difference of 8 to 10.2 points, by pair, would be found in 4 of 5 such studies."
    assert none.holds == f"{by_pair} {ADAPTERS}" and len(none.verdict.split()) <= 25


@pytest.mark.parametrize(("end", "printed"), [(0.00036, "+0.04"), (-0.0004, "−0.04"), (0.0011, "+0.1")])
def test_an_end_near_zero_shows_its_side(end: float, printed: str) -> None:
    """An interval that ends at "+0.0" does not tell whether it contains 0."""
    row = PAIR | {"more_gain": -0.0125, "more_gain_low": -0.025, "more_gain_high": end}
    verdict = headline(asked(difference_of_gains=[row]), ()).verdict
    assert printed.translate(str.maketrans("+−", "−+")) in verdict and "gained 1.3 points more than panel" in verdict


def test_where_nothing_is_solved_nothing_is_compared_or_drawn() -> None:
    nothing = {"before_rate": 0.0, "after_rate": 0.0, "gain": 0.0}
    apart = {"row": "difference", "label": "plain − tutor", "gain": 0.0, "gain_low": -0.5, "gain_high": 0.5}
    rows = [LEVEL | nothing, LEVEL | nothing | {"arm": "plain"}, LEVEL | nothing | apart]
    still = dict.fromkeys(("more_gain_low", "more_gain_high")) | {"more_gain": 0.0, "reason": "no rollout was correct"}
    found = headline(asked(answer_gain=rows, difference_of_gains=[PAIR | still]), ())
    assert found.verdict == "Not compared: no held-out rollout is correct." and found.withheld == ("plain − tutor",)
    untrained = [row | {"before_rate": None, "gain": None, "gain_low": None} for row in rows[:2]]
    found = headline(asked(answer_gain=[*untrained, rows[2]]), ())
    assert found.verdict == "Not compared: no held-out rollout is correct." and found.withheld == ("plain − tutor",)


def test_one_arm_and_none_that_was_trained() -> None:
    alone = headline(asked(answer_gain=[LEVEL]), ())
    assert alone.verdict == "panel gained 12.5 points (95 % interval +5.0 to +20.0)."
    still = LEVEL | {"before_rate": None, "gain": None, "gain_low": None, "gain_high": None}
    single = headline(asked(answer_gain=[still | {"after_rate_low": 0.48, "after_rate_high": 0.75}], summary=[ARM]), ())
    words = "panel solves 62.5 % (95 % interval 48 % to 75 %), and 40 of 50 screened problems have a gradient."
    assert (single.verdict, single.holds) == (words, "Nothing was trained. 40 held-out problems.")
    other = still | {"arm": "plain", "label": "plain", "after_rate": 0.5}
    apart = LEVEL | {"row": "difference", "other": "plain", "after_rate": None}
    untrained = headline(asked(answer_gain=[still, other, apart]), ())
    more = "panel solves 12.5 points more than plain (95 % interval +5.0 to +20.0)."
    assert (untrained.verdict, untrained.holds) == (more, f"{TOO_SMALL} Nothing was trained. 40 held-out problems.")
    assert untrained.tiles == ()


def test_a_question_about_width_of_untrained_arms_is_answered_by_widths() -> None:
    wide = {"row": "level", "label": "panel", "arm": "panel", "after_width": 0.133, "other": None, "n": 40}
    wide |= dict.fromkeys(("difference", "difference_low", "difference_high", "detectable_difference", "holds_for"))
    apart = wide | {"row": "difference", "label": "panel − thinking", "other": "thinking", "after_width": None}
    apart |= {"difference": 0.063, "difference_low": 0.041, "difference_high": 0.085, "detectable_difference": 0.025}
    solved = LEVEL | {"row": "difference", "other": "thinking", "gain": 0.003, "gain_low": -0.08, "gain_high": 0.09}
    tables = {"answer_width": [wide, apart], "answer_gain": [solved]}
    found = headline(asked(**tables), ("diversities",), asks="is the panel wider?")
    assert found.verdict == "panel is wider than thinking by 0.063 (95 % interval +0.041 to +0.085)."
    accuracy = "Accuracy: undecided, panel solves 0.3 points more than thinking (95 % interval −8.0 to +9.0)."
    least = "A true difference of 0.025 would be found in 4 of 5 such studies."
    assert found.holds == f"{least} {accuracy} Nothing was trained. 40 held-out problems."
    tables["answer_width"][1] |= {"difference_low": -0.01}
    assert headline(asked(**tables), ("diversities",), asks="width?").verdict.startswith("Undecided: panel is wider")
    trained = headline(asked(difference_of_gains=[PAIR]), ("diversities", "trainings"), asks="is the panel wider?")
    assert trained.verdict == UNDECIDED


def test_arms_that_break_the_format_are_not_compared() -> None:
    form = [
        FORM | {"arm": arm, "sampled": sampled, "rollouts": rollouts}
        for arm in ("panel", "thinking", "plain")
        for sampled, rollouts in (("screening", 96), ("held-out, trained", 32))
    ]
    form[3] |= {"no_answer": 0.75, "no_answer_truncated": 18}
    pairs = [PAIR, PAIR | {"other": "plain"}]
    drawn = [LEVEL | {"row": "difference", "label": f"panel − {row['other']}", "other": row["other"]} for row in pairs]
    summary = [ARM | {"arm": arm} for arm in ("panel", "thinking", "plain")]
    tables = {"difference_of_gains": pairs, "answer_gain": [LEVEL, *drawn], "summary": summary}
    found = headline(asked(**tables, form=form), ())
    shares = "99 % of panel, 75 % of thinking and 99 % of plain"
    assert found.verdict == f"Not compared: of 32 held-out rollouts each, {shares} give no answer."
    cut = "Of those without an answer, 0 of panel's 32, 18 of thinking's 24 and 0 of plain's 32 were cut off"
    rule = "Arms are compared only if at least half of the rollouts answer."
    look = "To read completions: 'varband store show mine --completions 3 --failed'."
    assert found.holds == f"{cut} at max_tokens. {rule} 40 held-out problems. {look}"
    assert found.withheld == ("panel − thinking", "panel − plain")
    assert found.tiles[-1].values[1] == ("thinking", "75 %")
    assert found.tiles[-1].words == "of 32 held-out rollouts each give no answer"
    screened = headline(asked(**tables, form=[row for row in form if row["sampled"] == "screening"]), ())
    assert screened.verdict.startswith("Not compared: of 96 screening rollouts each, 99 % of panel")


OWN, ENDS = "than the study's own objective", "(95 % interval +5.0 to +20.0)."
OVER = LEVEL | {"row": "difference", "other": "max_rl", "gain": 0.06, "p_adjusted": 0.2}
OVER |= {"detectable_gain": 0.05}
FURTHER = OVER | {"other": "pkpo", "gain": -0.08, "gain_low": -0.2, "gain_high": 0.04}
FIVE = "A true difference of 5 points would be found in 4 of 5 such studies."


@pytest.mark.parametrize(
    ("rows", "verdict", "holds"),
    [
        ([OVER], f"Undecided: max_rl gained 6 points more {OWN} {ENDS}", f"{FIVE} 40 held-out problems."),
        (
            [OVER, FURTHER],
            f"Undecided: max_rl gained 6 points more and pkpo 8 points less {OWN}; all intervals contain 0.",
            f"{FIVE} 40 held-out problems.",
        ),
        (
            [OVER, FURTHER | {"gain": -0.1, "gain_high": -0.05, "p_adjusted": 0.01}],
            f"pkpo gained 10 points less {OWN} (95 % interval −20.0 to −5.0).",
            "1 of the 2 objectives is decided.",
        ),
        (
            [OVER, OVER | {"arm": "thinking", "gain": 0.01}],
            f"Undecided: max_rl on panel gained 6 points more and max_rl on thinking 1 point more {OWN};",
            "",
        ),
        (
            [OVER | {"other": name, "gain": n / 100} for n, name in enumerate("abcd")],
            f"Undecided, the furthest: d gained 3 points more {OWN}",
            "None of the 4 objectives is decided.",
        ),
    ],
)
def test_objectives_answer_their_own_question_in_the_order_of_the_study(
    rows: list[Row], verdict: str, holds: str
) -> None:
    found = headline(asked(answer_objectives=[LEVEL, *rows]), ("objectives",))
    assert found.verdict.startswith(verdict) and found.holds.startswith(holds)
    assert len(found.verdict.split()) <= 25


METHODS = [LEVEL | {"label": "one rollout", "method": "first", "tokens": 31.0, "rollouts": 1.0}]
METHODS += [LEVEL | {"label": name, "method": name, "tokens": 248.0} for name in ("majority", "likeliest")]


def test_a_search_is_told_with_its_cost_and_the_two_best_methods() -> None:
    over = LEVEL | {"row": "difference", "other": "majority"}
    two = over | {"other": "likeliest", "against": "majority", "gain": 0.025, "gain_low": -0.05, "gain_high": 0.1}
    found = headline(asked(answer_search=[*METHODS, over, two]), ("search_curves",))
    cost = "for 248 tokens a problem against 31."
    assert found.verdict == f"majority solves 12.5 points more than one rollout {ENDS.removesuffix('.')}, {cost}"
    best = "The best two: undecided, likeliest solves 2.5 points more than majority (95 % interval −5.0 to +10.0)."
    drew = "majority drew 16 rollouts a problem: 248 of 1,600 allowed tokens, prompts included."
    assert found.holds == f"{drew} {best} {TOO_SMALL} 40 held-out problems."
    assert len(found.verdict.split()) <= 25
    (spent,) = (tile.values for tile in found.tiles if tile.title.startswith("Cost"))
    assert spent == (("one rollout", "31"), ("majority", "248"), ("likeliest", "248"))


def test_a_question_that_names_a_method_or_an_objective_is_answered_by_that_one() -> None:
    one, best = (LEVEL | {"row": "difference", "other": name} for name in ("majority", "likeliest"))
    best |= {"gain": 0.2, "gain_low": 0.1, "gain_high": 0.3}
    question = "does a majority vote solve more than one rollout?"
    search = headline(asked(answer_search=[*METHODS, one, best]), ("search_curves",), asks=question)
    assert search.verdict.startswith("majority solves 12.5 points more")
    objectives = headline(asked(answer_objectives=[LEVEL, one, best]), ("objectives",), asks=question)
    assert objectives.verdict.startswith("majority gained 12.5 points more than the study's own objective")
    assert "Also likeliest gained 20 points more" in objectives.holds


def test_objectives_that_the_question_names_come_first() -> None:
    rows = [OVER, FURTHER, OVER | {"other": "best_of_four", "gain": -0.01}]
    question = "Does PKPO, or the best of four, gain more?"
    found = headline(asked(answer_objectives=[LEVEL, *rows]), ("objectives",), asks=question)
    first = "Undecided: pkpo gained 8 points less and best_of_four 1 point less than the study's own objective"
    assert found.verdict == f"{first}; also max_rl 6 points more; all intervals contain 0."
    assert len(found.verdict.split()) <= 25


def test_a_question_about_the_width_of_an_objective_is_answered_by_its_correct_ways() -> None:
    ways = LEVEL | {"row": "difference", "other": "majority", "difference": 0.25, "detectable_difference": 0.5}
    ways |= {"difference_low": -0.1, "difference_high": 0.6, "gain_low": None}
    tables = {"answer_objectives": [LEVEL, LEVEL | {"row": "difference", "other": "majority"}], "answer_ways": [ways]}
    found = headline(asked(**tables), ("objectives",), asks="does it keep its width?")
    assert found.verdict.startswith("Undecided: majority finds 0.25 more correct ways among 8")
    assert found.holds.startswith("A true difference of 0.50 would be found in 4 of 5 such studies. Accuracy: majority")
    assert len(found.verdict.split()) <= 25


def test_objectives_within_the_margin_do_not_differ() -> None:
    rows = [LEVEL | {"row": "difference", "other": name, "gain": 0.001, "gain_low": -0.01} for name in ("a", "b")]
    alike = headline(asked(answer_objectives=[row | {"gain_high": 0.012} for row in rows]), ("objectives",))
    words = "No difference: all 2 objectives gain the same as the study's own objective to within 2 points."
    assert alike.verdict == words


def test_the_first_screen_has_the_length_of_completions_by_objective() -> None:
    lengths = {"as the study has it": 50.4, "brief": 21.0}
    rows = [{"arm": "panel", "objective": o, "metric": "length_mean", "after": n} for o, n in lengths.items()]
    tiles = headline(asked(summary=[ARM], objectives=rows), ("objectives",)).tiles
    (values,) = (tile.values for tile in tiles if tile.title.startswith("Length"))
    assert values == (("own objective", "50"), ("brief", "21"))


def test_tiles_the_audit_and_a_training_that_could_hardly_teach() -> None:
    ratio = {"metric": "ratio", "arm": "panel", "other": "thinking", "estimate": 1.4, "low": 1.1, "high": 1.8}
    summary = [ARM, ARM | {"seed": 1, "variance": 0}, ARM | {"arm": "thinking", "variance": 25}]
    steps = [{"arm": "panel", "seed": 0, "step": 1, "all_zero": 1, "variance": 0, "all_one": 0}]
    form = [
        FORM | dict.fromkeys(("no_answer", "invalid_tags", "truncated"), 0.0) | {"arm": a}
        for a in ("panel", "thinking")
    ]
    form = [row | {"sampled": "held-out, start", "invalid_tags": 0.02} for row in form]
    tables = {"summary": summary, "band_tests": [ratio], "live_groups": steps, "form": form}
    found = headline(asked(**tables, audit=[{"code": "single_seed"}] * 2), ())
    signal, *_, form = found.tiles
    assert (signal.values, signal.words) == ((("panel", "80 %"), ("thinking", "50 %")), "panel has more")
    assert (form.values[0], form.words) == (("panel", "2 %"), "of 320 held-out rollouts each; answers are in form")
    assert found.audit == "The audit has 2 findings about the design: one training seed only (both arms)."
    assert "No rollout in the training of panel was correct. Each step of panel trained on 1 problem." in found.holds
    tables["band_tests"] = [ratio, ratio | {"other": "plain"}, ratio | {"arm": "plain", "low": 0.9}]
    assert headline(asked(**tables), ()).tiles[0].words == "panel has most"
    tables["band_tests"] = [row | {"low": 0.9} for row in tables["band_tests"]]
    assert headline(asked(**tables), ()).tiles[0].words == "undecided for every pair"
    tables["form"] = [row | {"no_answer": 0.33} for row in tables["form"]]
    assert headline(asked(**tables), ()).tiles[-1].words == "of 320 held-out rollouts each give no answer"

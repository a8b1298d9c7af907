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
LEVEL |= {"p_adjusted": None, "budget": 1600}
ARM: Row = {"arm": "panel", "problems": 50, "variance": 40, "diversity_before": 0.15, "tokens_per_correct": 37.0}
ARM |= {"no_answer": 0.0, "invalid_tags": 0.02, "truncated": 0.0}


def asked(**tables: list[Row]) -> Callable[[str], pa.Table]:
    """Answers of the queries; those that are not given have no row."""
    return lambda name: pa.Table.from_pylist(tables.get(name.removeprefix("report_"), []))


GAIN_OF_10: Row = {"more_gain": -0.1, "more_gain_low": -0.15, "more_gain_high": -0.05, "p_adjusted": 0.001}
UNDECIDED = "Undecided: panel gained 0.1 points more than thinking (95 % interval −5.6 to +5.8)."
ADAPTERS = "100 held-out problems. This holds for these adapters, not the recipe."
FOUND = f"A difference of 8 points would have been found. {ADAPTERS}"
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
        ({"detectable_gain": None}, UNDECIDED, f"This study is too small to find any difference. {ADAPTERS}"),
        (
            UNKNOWN,
            "Undecided: the interval of the difference between panel and thinking is not known.",
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
    assert found.holds.startswith("Of 2 pairs of arms 1 differs, corrected for their number.")


def test_one_arm_and_none_that_was_trained() -> None:
    alone = headline(asked(answer_gain=[LEVEL]), ())
    assert alone.verdict == "panel gained 12.5 points (95 % interval +5.0 to +20.0)."
    still = LEVEL | {"before_rate": None, "gain": None, "gain_low": None, "gain_high": None}
    single = headline(asked(answer_gain=[still | {"after_rate_low": 0.48, "after_rate_high": 0.75}], summary=[ARM]), ())
    words = "panel solves 62.5 % (95 % interval 48 % to 75 %), and 40 of 50 screened problems have a gradient."
    assert (single.verdict, single.holds) == (words, "Nothing was trained. 40 held-out problems.")
    other = still | {"arm": "plain", "label": "plain", "after_rate": 0.5}
    apart = LEVEL | {"row": "difference", "other": "plain", "after_rate": None}
    width = {"metric": "diversity", "basis": "equal_n", "step": 0, "other_step": 0, "arm": "panel", "other": "plain"}
    width |= {"difference": 0.06, "difference_low": 0.04, "difference_high": 0.08}
    untrained = headline(asked(answer_gain=[still, other, apart], diversity=[width]), ())
    more = "panel solves 12.5 points more than plain (95 % interval +5.0 to +20.0)."
    assert untrained.verdict == f"Traces: panel is wider. {more}"
    assert untrained.holds == "Nothing was trained. 40 held-out problems."


def test_arms_that_break_the_format_are_not_compared() -> None:
    shares = {"no_answer": 0.99, "invalid_tags": 1.0, "truncated": 0.6, "accuracy": 0.0, "taught": False, "seed": None}
    form = [{"arm": arm, "sampled": "screening"} | shares for arm in ("panel", "thinking", "plain")]
    form[1] |= {"no_answer": 0.75}
    found = headline(asked(difference_of_gains=[PAIR, PAIR | {"other": "plain"}], form=form), ())
    shares = "99 % of panel, 75 % of thinking and 99 % of plain"
    assert found.verdict == f"Not compared: of the rollouts, {shares} give no answer."
    assert found.holds.endswith("'varband store show mine --completions 3 --failed'.")


def test_objectives_and_searches_answer_their_own_question() -> None:
    over = LEVEL | {"row": "difference", "other": "max_rl", "gain": 0.06, "p_adjusted": 0.2}
    chance = "Corrected for several comparisons, chance alone may give this difference (p = 0.20)."
    further = over | {"other": "pkpo", "gain": -0.08, "gain_low": -0.2, "gain_high": 0.04}
    elsewhere = [over, over | {"arm": "thinking", "gain": 0.01}]
    best = LEVEL | {"row": "difference", "other": "majority"}
    worse, methods = best | {"gain": -0.1, "gain_low": -0.2, "gain_high": -0.05}, [LEVEL | {"label": "majority"}]
    methods.append(LEVEL | {"label": "one rollout"})
    own, ends = "than the study's own objective", "(95 % interval +5.0 to +20.0)."
    for query, inputs, rows, verdict, holds in (
        (
            "objectives",
            "objectives",
            [LEVEL, over],
            f"No difference shown: max_rl gained 6 points more {own} {ends}",
            chance,
        ),
        (
            "objectives",
            "objectives",
            [LEVEL, over, further],
            f"No difference shown, the furthest: pkpo gained 8 points less {own} (95 % interval −20.0 to +4.0).",
            "Of 2 objectives none gain more and none gain less, corrected for their number.",
        ),
        (
            "objectives",
            "objectives",
            [LEVEL, over, further | {"gain": -0.1, "gain_high": -0.05, "p_adjusted": 0.01}],
            "None of 2 objectives gains more than the study's own: pkpo gained 10 points less (95 % interval −20.0 to",
            "1 gains less, corrected for their number.",
        ),
        (
            "objectives",
            "objectives",
            elsewhere,
            "No difference shown, the furthest: max_rl on panel gained 6 points more",
            "",
        ),
        (
            "search",
            "search_curves",
            [*methods, best],
            f"Search by majority solves 12.5 points more than one rollout {ends}",
            "Within 1,600 tokens a problem. 40 held-out problems.",
        ),
        (
            "search",
            "search_curves",
            [*methods, best, worse],
            f"Search by majority solves 12.5 points more than one rollout {ends}",
            "It is the best of 2 methods, of which 1 solves more. Within ",
        ),
    ):
        found = headline(asked(**{f"answer_{query}": rows}), (inputs,))
        assert found.verdict.startswith(verdict) and found.holds.startswith(holds)
        assert len(found.verdict.split()) <= 25


def test_a_question_that_names_a_method_or_an_objective_is_answered_by_that_one() -> None:
    one, best = (LEVEL | {"row": "difference", "other": name} for name in ("majority", "likeliest"))
    best |= {"gain": 0.2, "gain_low": 0.1, "gain_high": 0.3}
    methods = [LEVEL | {"label": "majority"}, LEVEL | {"label": "one rollout"}, one, best]
    question = "does a majority vote solve more than one rollout?"
    search = headline(asked(answer_search=methods), ("search_curves",), asks=question)
    assert search.verdict.startswith("Search by majority solves 12.5 points more")
    assert search.holds.startswith("likeliest (20 points) is the best of 2 methods, of which 2 solve more.")
    objectives = headline(asked(answer_objectives=[LEVEL, one, best]), ("objectives",), asks=question)
    assert objectives.verdict.startswith("majority gained 12.5 points more than the study's own objective")


def test_a_question_about_the_width_of_an_objective_is_answered_by_its_correct_ways() -> None:
    ways = {"arm": "panel", "objective": "majority", "metric": "right ways among 8", "after": 2.0, "p_adjusted": 0.2}
    ways |= {"over_baseline": 0.25, "over_low": -0.1, "over_high": 0.6}
    pair = LEVEL | {"row": "difference", "other": "majority"}
    tables = {"answer_objectives": [LEVEL, pair], "objectives": [ways]}
    found = headline(asked(**tables), ("objectives",), asks="does it keep its width?")
    assert found.verdict.startswith("No difference of width shown: majority finds 0.25 more correct ways among 8")
    assert found.holds.startswith("majority gained 12.5 points more")
    assert len(found.verdict.split()) <= 26


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
    found = headline(asked(summary=summary, band_tests=[ratio], audit=[{"code": "one_seed"}], live_groups=steps), ())
    signal, *_, form = found.tiles
    assert (signal.values, signal.words) == ((("panel", "80 %"), ("thinking", "50 %")), "panel has more")
    assert (form.values[0], form.words) == (("panel", "2 %"), "answers are in form")
    assert found.audit == "The audit has 1 finding about the design: one seed."
    assert "No rollout in the training of panel was correct: " in found.holds
    assert "Each step of panel trained on 1 problem." in found.holds
    mute = headline(asked(summary=[ARM, ARM | {"arm": "thinking", "no_answer": 0.33}]), ())
    assert mute.tiles[-1].words == ""

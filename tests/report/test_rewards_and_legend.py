"""Tables and charts of the report from rows of measures: rewards by objective, and the charts of answers."""

from __future__ import annotations

import json
from itertools import combinations

import pyarrow as pa
import pytest

from storage.artifacts.schemas import (
    Curves,
    Diversity,
    DiversityComparison,
    GainDifferences,
    PassAtK,
    PassAtKContrasts,
    Rollouts,
)
from storage.reading.charts import specs_of
from storage.reading.figures import FIGURES, answer_figure, without
from storage.reading.views import helper_tables, views
from tasks.measures.objectives import Objectives, of_steps
from tasks.measures.search import SearchContrasts, SearchCurves

ARMS = ["panel", "thinking"]
#: Empty inputs of the report's first chart.
KINDS = {"passk": PassAtK, "curves": Curves, "contrasts": PassAtKContrasts, "final": Rollouts}
EMPTY = {name: kind.schema.empty_table() for name, kind in KINDS.items()}


def test_the_report_has_the_parts_of_each_objectives_reward_and_its_lengths() -> None:
    steps = [{"num_tokens": 80, "length_mean": n, "reward_length": -n / 80} for n in (40.0, 20.0)]
    rows = [{"arm": "panel", **row} for row in of_steps("brief", [steps])]
    found = {row["metric"]: (row.get("before"), row.get("after")) for row in rows}
    assert found["length_mean"] == (40.0, 30.0)  # the last steps are both
    assert found["reward_length"] == (-0.5, -0.375)
    table = pa.Table.from_pylist(rows, schema=Objectives.schema)
    with views({}, helper_tables({}, ["panel"]) | {"objectives": table}) as asked:
        (row,) = asked.ask("report_objective_rewards").to_pylist()
    assert (row["objective"], row["part"], row["seeds"]) == ("brief", "length", 1)


def test_a_legend_names_only_the_marks_that_are_drawn() -> None:
    figure = FIGURES["answer_gain"]
    untrained = {"row": "level", "before_rate": None, "after_rate": 0.5, "gain": None, "detectable_gain": None}
    assert figure.explained([untrained]) == "Filled: the model, without training."
    trained = untrained | {"before_rate": 0.5}  # its hollow mark lies below the filled one
    assert figure.explained([trained]) == "Filled: with the last adapter."
    assert (
        figure.explained([trained | {"before_rate": 0.4}]) == "Hollow: before training. Filled: with the last adapter."
    )
    apart = {"row": "difference", "gain": 0.1, "detectable_gain": 0.2}
    assert "more one arm solves" in figure.explained([untrained, apart])
    assert "more one arm gained" in figure.explained([trained, apart])


def test_the_chart_draws_the_interval_that_decides() -> None:
    """An interval without zero beside the word undecided, which is about the corrected one, misled a reader."""
    pair = {"metric": "difference_of_gains", "arm": "panel", "other": "plain", "source": "all", "estimate": 0.056}
    pair |= {"low": 0.007, "high": 0.105, "corrected_low": -0.006, "corrected_high": 0.118, "p_adjusted": 0.08, "n": 40}
    pair |= {"detectable": 0.07, "p_equivalent_corrected": 0.9}
    table = pa.Table.from_pylist([pair], schema=GainDifferences.schema)
    with views({}, helper_tables({}, ["panel", "plain"]) | {"gain_differences": table} | EMPTY) as asked:
        (drawn,) = asked.ask("report_answer_gain").to_pylist()
        (printed,) = asked.ask("report_difference_of_gains").to_pylist()
    assert (drawn["gain_low"], drawn["gain_high"], drawn["corrected"]) == (-0.006, 0.118, True)
    assert (printed["more_gain_low"], printed["more_gain_high"]) == (-0.006, 0.118)
    # the correction widens the interval; the part of the power stays
    assert drawn["detectable_gain"] == printed["detectable_gain"] == pytest.approx(0.07 + (0.124 - 0.098) / 2)
    assert "corrected for the number of pairs" in FIGURES["answer_gain"].explained([drawn])


@pytest.mark.parametrize(
    ("asks", "metric", "scale", "number"),
    [
        ("Does it gain more?", "pass@1", 1.0, "\u22121.25 (\u22123.3 to +0.8)"),
        ("Does it keep its width?", "right ways among 8", 8.0, "\u22120.10 (\u22120.27 to +0.06)"),
    ],
)
def test_objectives_are_drawn_with_their_intervals(asks: str, metric: str, scale: float, number: str) -> None:
    """A question about width is answered by correct ways. A difference has its interval beside it."""
    found = {"before": 0.5, "after": 0.6, "after_low": 0.5, "after_high": 0.7, "n": 40}
    over = {"over_baseline": -0.0125, "over_low": -0.025, "over_high": 0.0, "corrected_low": -0.0333}
    over |= {"corrected_high": 0.008, "detectable": 0.03}
    rows = [
        {"arm": "panel", "objective": name, "metric": metric}
        | {column: value if column == "n" else scale * value for column, value in columns.items()}
        for name, columns in (("as the study has it", found), ("brevity", found | over))
    ]
    figure = answer_figure(["objectives", "trainings"], asks)
    tables = {"objectives": pa.Table.from_pylist(rows, schema=Objectives.schema)}
    with views({}, helper_tables({}, ["panel"]) | tables) as asked:
        table = asked.ask(figure.query)
    assert figure.chart
    own, brevity, apart = table.to_pylist()
    assert (own["label"], brevity["label"], apart["label"]) == ("own objective", "brevity", "brevity − own")
    assert (own[f"{figure.chart.x}_low"], own[f"{figure.chart.x}_high"]) == (scale * 0.5, scale * 0.7)
    assert apart[f"detectable_{figure.chart.y}"] == pytest.approx(scale * (0.03 + (0.0413 - 0.025) / 2))
    (drawing,) = specs_of(figure.chart, table, ["panel"])
    assert drawing["vconcat"][1]["data"]["values"][0]["number"] == number


def test_where_nothing_is_solved_the_chart_counts_rollouts() -> None:
    row = {"row": "level", "label": "tutor", "arm": "tutor", "before_rate": 0.0, "after_rate": 0.0, "gain": 0.0}
    figure = FIGURES["answer_gain"]
    assert figure.chart
    (drawing,) = specs_of(figure.chart, pa.Table.from_pylist([row | {"rollouts": 32}]), ["tutor"])
    assert drawing["vconcat"][0]["data"]["values"][0]["number"] == "0 of 32 correct"


def test_the_width_of_untrained_arms_is_drawn_for_a_question_about_it() -> None:
    assert answer_figure(["diversities", "trainings"], "is it wider?").name == "answer_gain"
    assert answer_figure(["diversities"], "does it solve more?").name == "answer_gain"
    figure = answer_figure(["diversities"], "Is the panel WIDER?")
    refs = {"final": ["rollouts-a", "rollouts-b"], "diversities": ["diversity-a", "diversity-b"]}
    final = [{"ref": ref, "arm": arm, "step": 0} for ref, arm in zip(refs["final"], ARMS, strict=True)]
    widths = [
        {"ref": ref, "problem_id": f"p{n}", "window": "whole", "diversity": at + n / 100, "n": 8}
        for ref, at in zip(refs["diversities"], (0.1, 0.3), strict=True)
        for n in range(5)
    ]
    widths += [widths[0] | {"problem_id": "unequal", "diversity": 0.9, "n": 7}]  # the other arm has 8 traces of it
    widths += [widths[-1] | {"ref": "diversity-b", "n": 8}]
    apart = {"metric": "diversity", "basis": "equal_n", "window": "whole", "arm": "panel", "step": 0, "n": 5}
    apart |= {"other": "thinking", "other_step": 0, "difference": -0.2, "low": -0.3, "high": -0.1}
    tables = {
        "final": pa.Table.from_pylist(final),
        "diversities": pa.Table.from_pylist(widths, schema=Diversity.schema.append(pa.field("ref", pa.string()))),
        "diversity": pa.Table.from_pylist([apart], schema=DiversityComparison.schema),
    }
    with views({}, helper_tables(refs, ARMS) | tables) as asked:
        rows = asked.ask(figure.query)
    panel, thinking, pair = rows.to_pylist()
    assert (panel["after_width"], thinking["after_width"]) == pytest.approx((0.12, 0.32))
    assert panel["after_width_low"] < 0.12 < panel["after_width_high"]
    assert (pair["label"], pair["difference"], pair["difference_low"]) == ("thinking − panel", 0.2, 0.1)
    (drawing,) = specs_of(figure.chart, rows, ARMS)
    assert "+0.200" in json.dumps(drawing) and len(drawing["vconcat"]) == 2
    (alone,) = specs_of(figure.chart, without(rows, [pair["label"]]), ARMS)
    assert len(alone["vconcat"]) == 1


def test_a_search_is_compared_with_one_rollout_and_the_two_best_methods_with_each_other() -> None:
    """The base method has a width in its name where another method draws more."""
    found = {
        "first:width=32": (0.5, 31.0),
        "majority": (0.75, 640.0),
        "likeliest": (0.8, 640.0),
        "longest": (0.4, 640.0),
    }
    curve = {"series": "method", "metric": "accuracy", "arm": "panel", "step": 0, "n": 40}
    curves = [
        curve | {"method": method, "budget": budget, "estimate": rate, "tokens": tokens}
        for method, (rate, tokens) in found.items()
        for budget in (800, 1600)
    ]
    contrasts = [
        {"metric": "accuracy", "budget": 1600, "arm": "panel", "step": 0, "method": one, "n": 40}
        | {"other": "panel", "other_step": 0, "other_method": other, "estimate": found[one][0] - found[other][0]}
        | {"low": -0.9, "high": 0.1, "corrected_low": -0.95, "corrected_high": 0.15, "detectable": 0.2}
        for one, other in combinations(sorted(found), 2)
    ]
    tables = {
        "search_curves": pa.Table.from_pylist(curves, schema=SearchCurves.schema),
        "search_contrasts": pa.Table.from_pylist(contrasts, schema=SearchContrasts.schema),
    }
    with views({}, helper_tables({}, ["panel"]) | tables) as asked:
        rows = asked.ask("report_answer_search").to_pylist()
    levels = [(row["label"], row["method"], row["tokens"]) for row in rows if row["row"] == "level"]
    assert levels[0] == ("likeliest", "likeliest", 640.0) and ("one rollout", "first", 31.0) in levels
    apart = {
        row["label"]: (row["gain"], row["gain_low"], row["gain_high"]) for row in rows if row["row"] == "difference"
    }
    assert apart.keys() == {f"{method} − one rollout" for method in [*found][1:]} | {"likeliest − majority"}
    assert apart["likeliest − one rollout"] == pytest.approx((0.3, -0.15, 0.95))  # stored the other way round
    assert apart["likeliest − majority"] == pytest.approx((0.05, -0.95, 0.15))

"""What a report reads of other reports: all values of its matrix that the store has, and earlier looks."""

from __future__ import annotations

import json

import pytest

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.reading.charts import specs_of
from storage.reading.figures import Chart
from storage.reading.query_cache import ask
from storage.reading.recorded import answering
from tasks.engines.toolbox import Toolbox
from tasks.report.headline import Headline
from tasks.report.matrix import Value, at_all_values, chart_of, values_of
from tasks.report.render import final_rollouts_of
from tasks.stage import Session, session
from tests.dashboards.conftest import Study

ARMS = ("panel", "thinking")
ANSWER = Chart(kind="levels", x="after_rate", y="gain", y_name="difference, points")
FIRST = Headline("panel is wider than thinking by 0.1.", "Nothing was trained.", "", ())


def value(name: str, at: float, low: float, high: float, arm: str = "panel") -> Value:
    other = ARMS[1 - ARMS.index(arm)]
    row = {"row": "difference", "arm": arm, "other": other, "gain": at, "gain_low": low, "gain_high": high}
    return Value(name, (row,))


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([value("temperature 1.0", 0.2, 0.1, 0.3)], "panel is wider than thinking at every temperature: 0.5 and 1.0."),
        (
            [value("temperature 1.0", 0.2, -0.1, 0.3), value("temperature 2.0", 0.2, 0.1, 0.3, "thinking")],
            "panel is wider than thinking at temperature 0.5; thinking is wider than panel at temperature 2.0;"
            " undecided at temperature 1.0.",
        ),
        ([], FIRST.verdict),
    ],
)
def test_the_verdict_is_about_all_values(others: list[Value], verdict: str) -> None:
    values = [value("temperature 0.5", 0.1, 0.05, 0.15), *others]
    found = at_all_values(FIRST, values, "temperature=0.5", "gain", "is wider than", ARMS)
    assert found.verdict == verdict
    here = f"At temperature 0.5: {FIRST.verdict} {FIRST.holds}"
    assert found.holds == (here if others else FIRST.holds)


def test_values_are_read_from_other_reports_and_drawn_in_one_chart(study: Study) -> None:
    figure, report = answering(study.root, str(study.report)), str(study.report)
    rows = ask(study.root, report, figure.query)
    made_up = [{"row": "level", "label": arm, "arm": arm, "after_rate": 0.5, "gain": None} for arm in ARMS]
    with session(Session(Store(study.root), Toolbox())):
        gone = "size=8 report-0000000000000000"
        values = values_of(figure, "size=16", rows, [f"size=4 {report}", gone], ARMS)
    assert [one.name for one in values] == ["size 4", "size 16"]
    assert values[0].rows == values[1].rows
    chart, table = chart_of([Value(one.name, tuple(made_up)) for one in values], ANSWER, ARMS)
    (drawing,) = specs_of(chart, table, ARMS)
    assert {row["label"] for row in drawing["vconcat"][0]["data"]["values"]} == {"size 4", "size 16"}
    assert "panel" in json.dumps(drawing) and drawing["vconcat"][0]["layer"][0]["encoding"]["color"]["legend"]


def test_a_value_where_the_other_arm_leads_is_turned() -> None:
    values = [value("size 4", 0.1, 0.05, 0.15, "thinking")]
    _, table = chart_of(values, ANSWER, ARMS)
    (row,) = table.to_pylist()
    assert (row["arm"], row["gain"], row["gain_low"], row["gain_high"]) == ("panel", -0.1, -0.15, -0.05)


def test_the_same_rollouts_in_a_report_of_another_version_are_no_second_look(study: Study) -> None:
    store, gone = Store(study.root), Ref.parse("report-0000000000000000")
    with session(Session(store, Toolbox())):
        assert final_rollouts_of(study.report) == tuple(store.manifest(study.report).recipe.inputs["final"])
        assert final_rollouts_of(gone) == (str(gone),)

"""The parts of each objective's reward, from the steps of its trainings to the report."""

from __future__ import annotations

import pyarrow as pa

from storage.reading.figures import FIGURES
from storage.reading.views import helper_tables, views
from tasks.measures.objectives import Objectives, of_steps


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
    words = figure.explained([untrained])
    assert "Filled" in words and words.endswith(figure.caption)
    assert not any(mark in words for mark in ("Hollow", "dots", "Below", "Grey"))

"""Figures read inputs that exist, say what their intervals hold for, and name the file of a wrong query."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.artifacts.schemas import ALWAYS, DIAGNOSTICS, SOMETIMES, Votes
from storage.errors import UserError
from storage.reading import views as module
from storage.reading.figures import FIGURES
from storage.reading.views import helper_tables, views
from storage.sql import named
from tasks.evidence import names_of_measures

#: Of the policy before training, of one adapter a row, and of labelled traces.
NOT_OF_SEEDS = {"calibration", "rescreening", "summary"}


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_interval_over_trained_policies_says_what_it_holds_for(name: str) -> None:
    text = named(f"report_{name}")
    if "_low" in text and name not in NOT_OF_SEEDS:
        assert "holds_for" in text


def test_every_figure_reads_inputs_that_a_report_may_have() -> None:
    known = {*ALWAYS, *SOMETIMES, *names_of_measures()}
    assert {
        name: {*figure.sources} - known for name, figure in FIGURES.items() if not known.issuperset(figure.sources)
    } == {}


def test_the_parts_of_a_reward_are_shown_by_step(tmp_path: Path) -> None:
    file, values = (
        tmp_path / "diagnostics.parquet",
        {"reward_correct": 0.5, "reward_length": -0.1, "signal_groups": 1.0},
    )
    rows = [{"arm": "panel", "seed": 0, "step": 1, "metric": name, "value": value} for name, value in values.items()]
    pq.write_table(pa.Table.from_pylist(rows, schema=DIAGNOSTICS), file)
    for files, expected in (({"diagnostics": [file]}, [("correct", 0.5), ("length", -0.1)]), ({}, [])):
        with views(files, helper_tables({}, ["panel"])) as asked:
            found = asked.ask("report_reward_parts").to_pylist()
        assert [(row["part"], row["reward"]) for row in found] == expected


@pytest.mark.parametrize("older", [False, True])
def test_a_wrong_query_is_told_in_duckdbs_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    """Only an artifact that lacks a column of its kind may be of another version."""
    (folder := tmp_path / f"votes-{'a' * 16}").mkdir()
    kept = pa.schema([field for field in Votes.schema if not older or field.name != "metric"])
    pq.write_table(kept.empty_table(), folder / "data.parquet")
    monkeypatch.setattr(module, "named", lambda _: "select arms from votes")
    with views({"votes": [folder / "data.parquet"]}, {}) as asked, pytest.raises(UserError) as error:
        asked.ask("report_votes")
    text = str(error.value)
    assert text.startswith("storage/reading/queries/report_votes.sql: ") and '"arms" not found' in text
    assert text.endswith("is of an older version, without metric: run the study again)") == older

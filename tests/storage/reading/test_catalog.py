"""What `varband store sql` answers, and that it writes nothing."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.artifacts.schemas import ALWAYS, DIAGNOSTICS, SOMETIMES, Votes
from storage.errors import UserError
from storage.reading import views as module
from storage.reading.catalog import ask
from storage.reading.figures import FIGURES
from storage.reading.recorded import listed_runs, run_of, running, spending_of
from storage.reading.views import helper_tables, views
from storage.records.runs import now
from storage.records.spending import Charge, Journal
from tasks.evidence import names_of_measures
from tests.storage.records.test_garbage import recorded


def test_what_is_no_question_is_refused_inside_the_root_too(tmp_path: Path) -> None:
    there = f"'{tmp_path}/here.csv'"
    for statement in (
        f"copy (select 1) to {there}",
        f"attach {there} as other",
        f"select 1; copy (select 1) to {there}",
    ):
        with pytest.raises(UserError, match="write one statement that begins with select"):
            ask(tmp_path, statement)
    assert list(tmp_path.iterdir()) == []


# What pages read beside the artifacts: runs, who made a report, what it was charged.


REPORT = "report-0123456789abcdef"


def test_a_report_knows_its_run_and_what_it_was_charged(tmp_path: Path) -> None:
    recorded(tmp_path, report=REPORT)
    recorded(tmp_path, "running", "demo-00000002", started="2000-01-01T00:00:00+00:00")
    run = run_of(tmp_path, REPORT)
    assert run is not None and run.id == "demo-00000001"
    assert spending_of(tmp_path, REPORT) is None  # nothing was charged yet
    counted: dict[str, Any] = {"arm": "panel", "rollouts": 8, "correct": 2, "tokens": 400}
    charge = Charge(time=now(), ref="rollouts-0123456789abcdef", kind="rollouts", title="screen panel", **counted)
    Journal(tmp_path, run.id).enter([charge, charge])
    spent = spending_of(tmp_path, REPORT)
    assert spent is not None
    [row] = spent.to_pylist()
    assert (row["arm"], row["rollouts"], row["tokens"], row["tokens_per_correct"]) == ("panel", 16, 800, 200)
    assert run_of(tmp_path, "report-ffffffffffffffff") is None
    assert spending_of(tmp_path, "report-ffffffffffffffff") is None


def test_a_silent_run_is_not_running(tmp_path: Path) -> None:
    """Its heartbeat, not its word, says whether a run on another host is at work."""
    recorded(tmp_path, "running")
    recorded(tmp_path, "running", "demo-00000002", heartbeat="2000-01-01T00:00:00+00:00")
    assert [run.id for run in running(tmp_path)] == ["demo-00000001"]
    states = {row["id"]: row["state"] for row in listed_runs(tmp_path).to_pylist()}
    assert states == {"demo-00000001": "running", "demo-00000002": "crashed"}


# Figures read inputs that exist, say what their intervals hold for, and name the file of a wrong query.


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

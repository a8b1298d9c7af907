"""What `varband store sql` answers, and that it writes nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from storage.errors import UserError
from storage.reading.catalog import ask
from storage.reading.recorded import listed_runs, run_of, running, spending_of
from storage.records.runs import Run, now, write_run
from storage.records.spending import Charge, Journal


def test_what_is_no_question_is_refused_inside_the_root_too(tmp_path: Path) -> None:
    there = f"'{tmp_path}/here.csv'"
    for statement in (
        f"copy (select 1) to {there}",
        f"attach {there} as other",
        f"select 1; copy (select 1) to {there}",
    ):
        with pytest.raises(UserError, match="write one SELECT"):
            ask(tmp_path, statement)
    assert list(tmp_path.iterdir()) == []


# What pages read beside the artifacts: runs, who made a report, what it was charged.


REPORT = "report-0123456789abcdef"


def recorded(root: Path, name: str, **more: object) -> None:
    given = {"profile": "demo", "request": {}, "state": "finished", "started": now(), "heartbeat": now()}
    write_run(root, Run.model_validate({"id": name, **given, "host": "elsewhere", "pid": os.getpid()} | more))


def test_a_report_knows_its_run_and_what_it_was_charged(tmp_path: Path) -> None:
    recorded(tmp_path, "demo-00000001", report=REPORT)
    recorded(tmp_path, "demo-00000002", state="running", started="2000-01-01T00:00:00+00:00")
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
    recorded(tmp_path, "demo-00000001", state="running")
    recorded(tmp_path, "demo-00000002", state="running", heartbeat="2000-01-01T00:00:00+00:00")
    assert [run.id for run in running(tmp_path)] == ["demo-00000001"]
    states = {row["id"]: row["state"] for row in listed_runs(tmp_path).to_pylist()}
    assert states == {"demo-00000001": "running", "demo-00000002": "crashed"}

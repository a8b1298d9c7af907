"""Nights, end to end: a schedule less than a minute ahead on a real server, a real worker, the demo's adapters, a webhook that hears.

Each night leaves a table that says what it checked; only one that compared everything and found it unchanged is green.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.schemas import Training
from storage.artifacts.store import Store
from storage.records.record import last_nights
from tests.chaos.server_faults import api, deployment, logs, start, wait_for, wait_until
from tests.servers import SMALL, Server, postgres, prefect_server, receiver

pytestmark = pytest.mark.slow

#: A webhook's address, and what was posted to it.
Hook = tuple[str, list[dict[str, str]]]
OTHER = SMALL | {"arms": ["thinking"]}


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with receiver() as up:
        yield up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hook: Hook) -> Iterator[Server]:
    with postgres() as database, prefect_server(tmp_path_factory.mktemp("nightly"), database) as up:
        code = (
            "from prefect.blocks.notifications import CustomWebhookNotificationBlock as Block\n"
            f"Block(name='varband', url={hook[0]!r}, json_data={{'subject': '{{{{subject}}}}', 'body': '{{{{body}}}}'}})"
            ".save('varband')\n"
        )
        assert up.spawn(["-c", code], "block.log").wait(120) == 0, (up.folder / "block.log").read_text()[-2000:]
        assert "people are told" in up.varband("server", "deploy").stdout
        up.worker("cpu", "cpu-1")
        up.worker("gpu", "gpu-1")
        yield up


def night(server: Server, **parameters: Any) -> dict[str, Any]:
    """One night at a scheduled time, with the schedule's own parameters: its run when it has ended."""
    at = f"/deployments/{deployment(server, 'reeval/reeval')['id']}/schedules"
    soon = (datetime.now(UTC) + timedelta(seconds=45)).isoformat()
    schedule = {"interval": 86_400, "anchor_date": soon}
    (made,) = api(server, "POST", at, [{"schedule": schedule, "parameters": parameters}]).json()  # type: ignore[arg-type]
    sought = {"deployments": {"name": {"any_": ["reeval"]}}, "sort": "START_TIME_DESC"}

    def runs() -> list[dict[str, Any]]:
        found = api(server, "POST", "/flow_runs/filter", sought).json()
        by = [run for run in found if (run["created_by"] or {}).get("id") == made["id"]]
        return [run for run in by if datetime.fromisoformat(run["expected_start_time"]) < datetime.now(UTC)]

    wait_until(runs)
    run = runs()[0]["id"]
    until = time.monotonic() + 420
    while (found := api(server, "GET", f"/flow_runs/{run}").json())["state"]["type"] not in ("COMPLETED", "FAILED"):
        assert time.monotonic() < until, f"{found['state']}\n{logs(server)}"
        time.sleep(1)
    assert found["auto_scheduled"]
    api(server, "DELETE", f"{at}/{made['id']}")
    return found


def table(server: Server, run: dict[str, Any]) -> list[dict[str, str]]:
    asked = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}, "key": {"any_": ["nightly"]}}}
    (artifact,) = api(server, "POST", "/artifacts/filter", asked).json()
    lines = [line for line in artifact["data"].splitlines() if line.startswith("| ")]
    names = ("adapter", "state", "evaluated", "tonight", "compared")
    return [dict(zip(names, line.strip("| ").split(" | "), strict=True)) for line in lines[1:]]


def heard(hook: Hook, run: dict[str, Any]) -> dict[str, str]:
    wait_until(lambda: [said for said in hook[1] if run["name"] in said["subject"]], 300)
    return next(said for said in hook[1] if run["name"] in said["subject"])


@pytest.fixture(scope="module")
def studied(server: Server) -> Training:
    """Two finished studies of one arm each; the first one's adapter."""
    trainings: list[Training] = []
    for study in (SMALL, OTHER):
        wait_for(server, start(server, "experiment/experiment", study=study), "Completed", seconds=900)
        found = (t for t in Store(server.root).refs("training") if isinstance(t, Training))
        trainings += [t for t in found if t not in trainings]
    assert len(trainings) == 2
    return trainings[0]


def test_a_night_with_nothing_to_check_is_not_green_and_is_heard(server: Server, hook: Hook) -> None:
    """A root without a finished run; and a study of which nothing is trained: its adapter is named."""
    run = night(server)
    assert run["state"]["name"] == "Unchecked" and "no adapter to look at" in run["state"]["message"]
    assert "Unchecked" in heard(hook, run)["subject"]
    run = night(server, studies=[SMALL])
    assert run["state"]["name"] == "Unchecked"
    assert "its evaluation is not made yet" in run["state"]["message"]


def test_a_night_on_which_nothing_changed_checks_every_finished_run(
    server: Server, hook: Hook, studied: Training
) -> None:
    run = night(server, canary_tokens=0)
    assert run["state"]["type"] == "COMPLETED", run["state"]
    rows = table(server, run)
    assert [(row["state"], row["compared"]) for row in rows] == [("holds", "nothing changed")] * 2
    assert not [said for said in hook[1] if run["name"] in said["subject"]], "a green night wakes nobody"


def test_a_figure_that_drifted_turns_the_night_red_and_is_heard(
    server: Server, hook: Hook, studied: Training, tmp_path: Path
) -> None:
    """A new grader: every stored answer of the study is judged correct by people, and what was wrong has changed."""
    store = Store(server.root)
    golds = {row["problem_id"]: row["gold"] for pool in store.refs("pool") for row in store.read(pool).to_pylist()}
    pairs = {
        (row["answer"], golds[row["problem_id"]])
        for ref in store.refs("rollouts")
        for row in store.read(ref, ["problem_id", "answer", "correct"]).to_pylist()
        if row["answer"] is not None and not row["correct"]
    }
    assert pairs, "all was right from the start"
    lines = [{"answer": a, "gold": g, "verdict": "correct", "reason": "a person's word"} for a, g in sorted(pairs)]
    overrides = tmp_path / "overrides.jsonl"
    overrides.write_text("\n".join(json.dumps(line) for line in lines))
    server.varband("grade", "store", "--overrides", str(overrides), "--root", str(server.root))
    run = night(server, studies=[SMALL])
    assert run["state"]["name"] == "Drifted", run["state"]
    (row,) = table(server, run)
    assert row["state"] == "drifted" and "stored verdicts changed" in row["compared"]
    (found, _) = last_nights(server.root).to_pylist()
    assert found["state"] == "drifted" and found["adapter"] == row["adapter"]
    said = heard(hook, run)
    assert "Drifted" in said["subject"] and row["adapter"] in said["body"] and run["id"] in said["body"]
    overrides.write_text("")
    server.varband("grade", "store", "--overrides", str(overrides), "--root", str(server.root))
    assert night(server, studies=[SMALL])["state"]["type"] == "COMPLETED"
    assert {found["state"] for found in last_nights(server.root).to_pylist()} == {"holds"}


def test_parked_and_failed_runs_are_heard(server: Server, hook: Hook) -> None:
    study = SMALL | {"seeds": [7]}
    settings = {"settings": [{"field": "training.steps", "value": "many"}]}
    for wanted, asked, budget in (("Suspended", study, {"tokens": 10}), ("Failed", settings, {})):
        run = start(server, "experiment/experiment", study=asked, budget=budget, gpu_pool=True)
        found = api(server, "GET", f"/flow_runs/{run}").json()
        said = heard(hook, found)
        assert wanted in said["subject"]
        assert ("tokens more are missing" if wanted == "Suspended" else "steps is 'many'") in said["body"]
    pieces = [said for said in hook[1] if said["subject"].startswith("make ")]
    assert not pieces, "whom fifty workers meet a wall for is told once, by the run that they work for"

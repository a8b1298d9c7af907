"""`varband server deploy` on a real server: code is renewed, what people decided in the UI stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.study.forms import StudyForm
from tests.chaos.server_faults import api, deployment
from tests.servers import Server, postgres, prefect_server

pytestmark = pytest.mark.slow

NIGHTLY = "reeval/reeval"
#: What a person set: another night, two schedules, one of them off, other parameters, another queue.
EDITED = {
    "paused": True,
    "parameters": {"budget": {"tokens": 7}},
    "work_queue_name": "experiments",
    "job_variables": {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "OMP_NUM_THREADS": "4"}},
    "tags": ["varband", "nightly", "ours"],
    "concurrency_limit": 2,
}
SCHEDULES = [
    {"schedule": {"cron": "30 3 * * 1-5", "timezone": "Europe/Berlin"}, "active": True},
    {"schedule": {"interval": 7200}, "active": False, "parameters": {"budget": {}}},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres() as database, prefect_server(tmp_path_factory.mktemp("deploy"), database) as up:
        up.varband("server", "deploy")
        yield up


def decisions(server: Server) -> dict[str, Any]:
    known = deployment(server, NIGHTLY)
    schedules = [(s["id"], s["schedule"], s["active"], s["parameters"]) for s in known["schedules"]]
    names = (*EDITED.keys() - {"concurrency_limit"}, "concurrency_options", "enforce_parameter_schema")
    return {n: known[n] for n in names} | {
        "schedules": sorted(schedules, key=str),
        "limit": known["global_concurrency_limit"]["limit"],
    }


@pytest.fixture
def edited(server: Server) -> dict[str, Any]:
    at = f"/deployments/{deployment(server, NIGHTLY)['id']}"
    assert api(server, "PATCH", at, EDITED).status_code == 204
    for schedule in deployment(server, NIGHTLY)["schedules"]:
        api(server, "DELETE", f"{at}/schedules/{schedule['id']}")
    assert api(server, "POST", f"{at}/schedules", SCHEDULES).status_code == 201  # type: ignore[arg-type]
    return decisions(server)


def test_code_is_renewed_and_decisions_stay(server: Server, edited: dict[str, Any]) -> None:
    """As an earlier commit left it: another entrypoint on the deployer's machine, another form."""
    now = deployment(server, NIGHTLY)
    old = {
        "entrypoint": "flows/old.py:reeval",
        "pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": "/home/deployer"}}],
        "parameter_openapi_schema": {"type": "object", "properties": {}},
        "description": "as it was",
    }
    assert api(server, "PATCH", f"/deployments/{now['id']}", old).status_code == 204
    assert "deployment reeval: renewed" in server.varband("server", "deploy").stdout
    assert {n: deployment(server, NIGHTLY)[n] for n in old} == {n: now[n] for n in old}
    assert decisions(server) == edited


def test_of_a_study_s_own_deployments_the_file_is_renewed_and_decisions_stay(server: Server, tmp_path: Path) -> None:
    """Called as its file; what people entered beside its text, and another study of the same nights, are theirs."""
    mine = tmp_path / "mine.toml"
    mine.write_text('base = "demo"\n')
    assert "deployment mine-nightly: made" in server.varband("server", "deploy", str(mine)).stdout
    (study,) = deployment(server, "reeval/mine-nightly")["parameters"]["studies"]
    assert study == deployment(server, "experiment/mine")["parameters"]["study"]
    assert StudyForm(**study).request().profile == "mine.toml"
    entered = {
        "experiment/mine": {"study": study | {"seeds": [3]}, "budget": {"usd": 5}},
        "reeval/mine-nightly": {"studies": [study, {"profile": "demo"}], "budget": {"tokens": 7}},
    }
    for name, parameters in entered.items():
        at = f"/deployments/{deployment(server, name)['id']}"
        assert api(server, "PATCH", at, {"paused": True, "parameters": parameters}).status_code == 204
    mine.write_text('base = "demo"\nseeds = [1]\n')
    said = server.varband("server", "deploy", str(mine)).stdout
    for name in ("mine", "mine-nightly"):  # whose file of this name it was may see it
        assert f"deployment {name}: renewed\n" in said
    edited = study | {"file": mine.read_text()}
    asked, nightly = (deployment(server, name) for name in entered)
    assert asked["paused"] and nightly["paused"]
    assert asked["parameters"] == {"study": edited | {"seeds": [3]}, "budget": {"usd": 5}}
    assert nightly["parameters"] == entered["reeval/mine-nightly"] | {"studies": [edited, {"profile": "demo"}]}

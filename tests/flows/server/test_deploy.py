"""`varband server deploy` on a real server: code is renewed, what people decided in the UI stays."""

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from flows.server.deployments import DEPLOYMENTS
from flows.server.start import AUTH
from flows.study.forms import StudyForm
from flows.upkeep.doctor import DEPLOYED
from storage.errors import UserError
from tests.chaos.server_faults import api, deployment
from tests.servers import REPO, Server, postgres, prefect_server
from tests.test_docs import PAGES, blocks

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


# What a server offers, without one: its deployments as the documentation lists them, and what their forms refuse.


FORMS = {one.name: one.of_code()["parameter_openapi_schema"] for one in DEPLOYMENTS}


def test_doctor_misses_every_deployment_that_is_not_there() -> None:
    assert FORMS.keys() == DEPLOYED


@pytest.mark.parametrize(
    ("deployment", "parameters", "fits"),
    [
        ("gc", {"older_than_days": 0, "remove": True}, True),
        ("gc", {"older_than_days": -1}, False),  # would collect what a run makes at this moment
        ("experiment", {"study": {"profile": "demo"}, "budget": {"usd": 20}, "gpu_pool": True}, True),
        ("experiment", {"study": {"profil": "demo"}}, False),
        ("experiment", {"study": {"name": "my study"}}, False),
    ],
)
def test_a_form_refuses_what_cannot_be(deployment: str, parameters: dict[str, Any], fits: bool) -> None:
    from prefect.utilities.schema_tools.validation import is_valid

    assert is_valid(parameters, FORMS[deployment]) == fits


# Another account of the machine, or a page in a browser, that may reach the server's port: it can do nothing there.


SERVER, CLIENT = AUTH


def protected(home: Path, **environment: str) -> tuple[str, dict[str, str]]:
    """What `varband server start` says, and the environment of the server that it starts. In a process of its own: Prefect
    reads its settings once."""
    code = (
        "import json, os; from flows.server.start import protect; said = protect('127.0.0.1', 4200);"
        " print(json.dumps([said, dict(os.environ)]))"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**kept, "PREFECT_HOME": str(home), "PYTHONPATH": str(REPO), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    if done.returncode:
        raise UserError(done.stderr.splitlines()[-1])
    return tuple(json.loads(done.stdout.splitlines()[-1]))  # type: ignore[return-value]


def kept_in(home: Path) -> dict[str, str]:
    profiles = tomllib.loads((home / "profiles.toml").read_text())
    return profiles["profiles"][profiles["active"]]


def test_the_first_start_makes_a_password_that_only_its_user_reads(tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text('active = "ours"\n[profiles.ours]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n')
    said, environment = protected(tmp_path)
    made = kept_in(tmp_path)
    assert made[SERVER] == made[CLIENT] and len(made[SERVER]) > 30 and made["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert (tmp_path / "profiles.toml").stat().st_mode & 0o777 == 0o600
    assert str(tmp_path / "profiles.toml") in said and made[SERVER] not in said
    assert environment["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:4200,http://localhost:4200"
    assert protected(tmp_path)[0] == "" and kept_in(tmp_path) == made


def test_a_password_that_is_set_holds_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    assert protected(tmp_path, **{SERVER: "us:ours"})[0] == "" and not (tmp_path / "profiles.toml").exists()
    with pytest.raises(UserError, match="--open"):
        protected(tmp_path, **{SERVER: ""})
    protected(tmp_path, **{CLIENT: "us:ours"})
    assert kept_in(tmp_path)[SERVER] == "us:ours"


def test_who_has_no_password_starts_nothing(tmp_path: Path) -> None:
    """The attack: a work pool of one's own, a deployment with a shell command as its step, a run of it."""
    with prefect_server(tmp_path) as server:
        for path in ("/work_pools/filter", "/deployments/filter", "/flow_runs/filter", "/block_documents/filter"):
            for auth in (None, ("varband", "wrong")):
                assert httpx.post(f"{server.url}/api{path}", json={}, auth=auth).status_code == 401
        page = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        answer = httpx.options(f"{server.url}/api/flows/filter", headers=page)
        assert "access-control-allow-origin" not in answer.headers

        with pytest.raises(WebSocketException), connect(f"{server.url.replace('http', 'ws')}/api/events/out") as socket:
            socket.recv()
        server.root.mkdir()
        assert "made" in server.varband("server", "deploy").stdout
        server.worker("cpu", "one")
        found = server.varband("doctor", check=False).stdout
        assert "runs Prefect" in found
        server.environment |= {CLIENT: "varband:wrong"}
        assert "refused the password" in server.varband("server", "deploy", check=False).stderr


# The lines of the pages that teach which need a server, as written, on one of them.


#: Servers in the foreground: `prefect_server` starts it.
SERVING = ("varband server start",)


def test_each_line_that_needs_a_server_does_what_its_page_says(tmp_path: Path) -> None:
    shown = [block for page in PAGES for block in blocks(page) if block.title.startswith("needs a server: ")]
    lines = [line for block in shown for line in block.text.splitlines()]
    assert len(lines) >= 5 and set(SERVING) <= set(lines)
    with postgres() as database, prefect_server(tmp_path, database) as server:
        server.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for line in lines:
            if " worker start " in line:
                works(server, line)
            elif line not in SERVING:
                done = subprocess.run(
                    ["bash", "-c", line], env=server.environment, cwd=tmp_path, capture_output=True, text=True
                )
                assert done.returncode == 0, line + done.stdout + done.stderr


def works(server: Server, line: str) -> None:
    """A worker comes up, and looks for runs in its pool."""
    log = server.folder / f"{len(server.workers)}.log"
    worker = server.spawn(["-c", f"import os; os.execvp('bash', ['bash', '-c', {f'exec env {line}'!r}])"], log.name)
    server.workers[line] = worker
    until = time.monotonic() + 120
    while "started!" not in log.read_text() and time.monotonic() < until and worker.poll() is None:
        time.sleep(0.5)
    assert "started!" in log.read_text() and worker.poll() is None, f"{line}\n{log.read_text()[-2000:]}"

"""Workers with a checkout, an environment and a root of their own: what differs is said before anything is paid."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.records.runs import all_runs
from storage.records.spending import charges
from tests.chaos.server_faults import api, start, wait_for
from tests.servers import REPO, SHRUNK, SMALL, Server, end, postgres, prefect_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres() as database, prefect_server(tmp_path_factory.mktemp("hosts"), database) as up:
        up.varband("server", "deploy")
        up.worker("cpu", "cpu-1")
        yield up


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, as another host has it: these files, one commit further."""
    home = tmp_path_factory.mktemp("host") / "varband"
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPO / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, home / name)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "one commit further"]):
        subprocess.run(["git", "-C", str(home), *words], check=True, capture_output=True)
    return home


def commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def refused(server: Server, name: str, **environment: str) -> str:
    """What a study says whose arm comes to a worker with this environment."""
    server.worker("gpu", name, limit=1, **environment)
    run = start(server, "experiment/experiment", study=SMALL, gpu_pool=True)
    try:
        found = wait_for(server, run, "Failed")
    except AssertionError:
        found = api(server, "GET", f"/flow_runs/{run}").json()
    end(server.workers[name])
    assert found["state"]["name"] == "Failed", found["state"]
    message = found["state"]["message"]
    assert "nothing was paid" in message and message.count("\n") == 0
    assert charges(server.root).num_rows == 0
    (record,) = all_runs(server.root)
    assert record.state == "failed" and "nothing was paid" in record.why
    return message


def test_a_worker_runs_its_own_checkout_and_another_commit_is_refused(server: Server, elsewhere: Path) -> None:
    said = refused(server, "gpu-far", PYTHONPATH=str(elsewhere))
    assert f"code {commit(elsewhere)}" in said and f"instead of {commit(REPO)}" in said


def test_another_root_is_refused(server: Server, tmp_path: Path) -> None:
    said = refused(server, "gpu-alone", VARBAND_ROOT=str(tmp_path / "own"))
    assert str(tmp_path / "own") in said and "VARBAND_ROOT is another root" in said


def test_a_name_that_somebody_typed_stays_and_settings_are_tags(server: Server) -> None:
    found = api(server, "GET", "/deployments/name/experiment/experiment").json()
    body = {"name": "a colder panel", "parameters": {"study": SMALL | {"seeds": [3]}, "budget": {"tokens": 10}}}
    run = api(server, "POST", f"/deployments/{found['id']}/create_flow_run", body).json()["id"]
    ended = wait_for(server, run, "Suspended")
    assert ended["name"] == "a colder panel"
    assert {"profile=demo", "arms=panel", "seeds=3", *(f"{field}={value}" for field, value in SHRUNK.items())} <= set(
        ended["tags"]
    )

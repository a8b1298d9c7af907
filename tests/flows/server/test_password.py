"""Another account of the machine, or a page in a browser, that may reach the server's port: it can do nothing there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from flows.server.start import AUTH
from storage.errors import UserError
from tests.servers import REPO, prefect_server

pytestmark = pytest.mark.slow
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

"""One person's run: Prefect's temporary server is killed under it, and the run finishes all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from storage.artifacts.store import Store
from storage.records.runs import all_runs
from tests.flows.server.test_ui import SHRUNK
from tests.servers import REPO, end

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


def temporary_server(process: int) -> int | None:
    """The server that a process has started: a child of it, by what it runs."""
    for child in Path(f"/proc/{process}/task").glob("*/children"):
        for pid in map(int, child.read_text().split()):
            if b"prefect.server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


@pytest.mark.parametrize("when", ["while it samples", "while it trains"])
def test_a_run_whose_temporary_server_dies_finishes(tmp_path: Path, when: str) -> None:
    root, log = tmp_path / "root", tmp_path / "log"
    wishes = [word for field, value in SHRUNK.items() for word in ("--set", f"{field}={value}")]
    words = ["run", "demo", "--arms", "panel", "--engine", "transformers", "--root", str(root), *wishes]
    unset = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment = {**unset, "PYTHONPATH": str(REPO), "PREFECT_HOME": str(tmp_path / "home")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", "from cli.main import main; main()", *words, "--set", "hardware.arms_at_once=1"],
            cwd=REPO,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 400
        sought = "screen panel" if when == "while it samples" else "train panel seed 0"
        while not any(run.at == sought for run in all_runs(root)) or temporary_server(process.pid) is None:
            assert process.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        server = temporary_server(process.pid)
        assert server is not None
        ports = [c.laddr.port for c in psutil.Process(server).net_connections() if c.status == psutil.CONN_LISTEN]
        for port in ports:  # another account of this machine could change what the run reads
            assert httpx.post(f"http://127.0.0.1:{port}/api/flow_runs/filter", json={}).status_code == 401
        assert ports
        os.kill(server, signal.SIGKILL)
        assert process.wait(400) == 0, log.read_text()[-3000:]
    finally:
        end(process)
    (run,) = all_runs(root)
    assert run.state == "finished" and len(Store(root).refs("report")) == 1
    assert "Traceback" not in log.read_text()

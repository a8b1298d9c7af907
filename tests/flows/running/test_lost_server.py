"""One person's run under a Prefect server: the server is killed under it, and the run finishes all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from storage.artifacts.store import Store
from storage.records.runs import all_runs
from tests.flows.server.test_ui import SHRUNK
from tests.servers import end, prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.mark.parametrize("when", ["screen panel", "train panel seed 0"])
def test_a_run_whose_server_dies_finishes(tmp_path: Path, when: str) -> None:
    wishes = [word for field, value in SHRUNK.items() for word in ("--set", f"{field}={value}")]
    words = ["run", "demo", "--arms", "panel", "--engine", "transformers", *wishes]
    with prefect_server(tmp_path) as server:
        run = server.spawn(["-c", "from cli.main import main; main()", *words], "log", PREFECT_LOGGING_LEVEL="CRITICAL")
        log, until = tmp_path / "log", time.monotonic() + 400
        while not any(found.at == when for found in all_runs(server.root)):
            assert run.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        end(server.process)
        assert run.wait(400) == 0, log.read_text()[-3000:]
        (record,) = all_runs(server.root)
        assert record.state == "finished" and len(Store(server.root).refs("report")) == 1
        assert "Traceback" not in log.read_text()

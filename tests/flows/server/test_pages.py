"""The lines of the pages that teach which need a server, as written, on one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import Server, postgres, prefect_server
from tests.test_docs import PAGES, blocks

pytestmark = pytest.mark.slow

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

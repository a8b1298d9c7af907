"""`varband demo-server`: all of it comes up by one command, a study runs on it, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from tests.flows.server.test_ui import SHRUNK
from tests.servers import REPO, free_port

pytestmark = pytest.mark.slow


def started(*words: str) -> subprocess.Popen[str]:
    code = "from cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code, "demo-server", *words],
        env=os.environ | {"PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_everything_is_seen_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    port, app = free_port(), free_port()
    sets = [word for name, value in SHRUNK.items() for word in ("--set", f"{name}={value}")]
    ports = ["--port", str(port), "--app-port", str(app)]
    command = started("--root", str(tmp_path / "all"), *ports, *sets, "--set", "hardware.arms_at_once=1")
    children: list[psutil.Process] = []
    try:
        assert command.stdout is not None
        said = ""
        for line in command.stdout:
            said += line
            if re.search("demo: (Completed|Failed|Crashed)", line):
                break
        assert "demo: Running" in said and "demo: Completed" in said, said
        for name in (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{app}"):
            assert name in said
            with urlopen(name, timeout=30) as answer:
                assert answer.status == 200
        assert len(list((tmp_path / "all" / "root" / "report").glob("report-*"))) == 1
        children = psutil.Process(command.pid).children(recursive=True)
        assert len(children) >= 3
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0
        _, alive = psutil.wait_procs(children, timeout=20)
        assert alive == []
    finally:
        for process in (*children, psutil.Process(command.pid)) if command.poll() is None else children:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_taken_port_is_one_sentence_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before = time.monotonic()
        command = started("--root", str(tmp_path / "all"), "--port", str(taken.getsockname()[1]))
        said, _ = command.communicate(timeout=60)
    assert command.returncode == 2
    assert "is taken: choose --port and --app-port" in said and "Traceback" not in said
    assert time.monotonic() - before < 60 and not (tmp_path / "all").exists()

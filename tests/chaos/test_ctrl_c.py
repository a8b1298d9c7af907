"""Ctrl-C in a terminal, which reaches every process of `varband run`, at 20 moments: while it imports, while the engine
loads, and later. A library that was loading once took the signal for an error of its own, and the study went on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.chaos]
#: Seconds after the command.
DELAYS = [0.3, 0.6, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 21, 25]


def test_every_process_is_gone_within_15_seconds(tmp_path: Path) -> None:
    for delay in DELAYS:
        root = tmp_path / f"after-{delay}"
        command = [sys.executable, "-m", "varband", "run", "demo", "--root", str(root)]
        run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        os.killpg(run.pid, signal.SIGINT)
        # a Python that has not begun to listen ends by the signal itself
        assert run.wait(15) in ((130, -signal.SIGINT) if delay < 2 else (130,)), delay
        time.sleep(2)
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(root) in (p.info["cmdline"] or [])], delay

"""What libraries print in a log."""

from __future__ import annotations

import subprocess
import sys

TALKS = """
import logging, warnings
import tqdm
for _ in tqdm.tqdm(range(3)): ...
warnings.warn("a warning")
logging.getLogger("library").warning("a line")
logging.getLogger("library").error("an error")
"""
RUNS = f"""
import subprocess, sys, warnings
from storage.errors import Notice
from tasks.engines.environment import quiet_libraries
quiet_libraries()
{TALKS}
warnings.warn(Notice("a notice"))
subprocess.run([sys.executable, "-c", {TALKS!r}.replace("logging.", "0 and logging.")])
raise SystemExit("an end")
"""


def test_a_log_holds_errors_and_notices_alone() -> None:
    """Of this process and of those that it starts."""
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=60)
    lines = [line.partition("Notice: ")[2] or line for line in done.stderr.splitlines()]
    assert lines == ["an error", "a notice", "an end"]

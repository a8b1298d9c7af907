"""A command that was forked from a server is what one is that a shell starts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm

SHOWN = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ.get("VARBAND_ROOT"), os.getsid(0) == os.getpid(), sys.stdin.read() == "")
print("cli.run" in sys.modules, "vllm" in sys.modules, __name__, file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(SHOWN)
    return str(tmp_path / "script.py")


def ran(script: str, **more: str) -> tuple[int, str, str]:
    process = warm.start([script, "a", "b c"], cwd=Path("/"), env={**warm.SHELL, **more}, engine=False)
    out, err = process.communicate()
    return process.wait(), out, err


def test_it_has_its_words_its_place_and_its_environment(script: str) -> None:
    code, out, err = ran(script, VARBAND_ROOT="here")
    assert (code, out) == (3, "['a', 'b c'] / here True True\n")
    assert err == "True False __main__\n", "it had nothing to import, and no engine was imported for it"


def test_what_libraries_read_as_they_are_imported_gets_a_process_of_its_own(script: str) -> None:
    env = {**warm.SHELL, "PREFECT_HOME": "/nowhere"}
    process = warm.start([warm.VARBAND, "--version"], cwd=Path("/"), env=env, engine=False)
    assert isinstance(process, subprocess.Popen)
    assert process.communicate()[0].startswith("varband")


def test_it_is_killed_with_its_group_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(600)")
    process = warm.start([str(tmp_path / "sleeps.py")], cwd=tmp_path, env=warm.SHELL, engine=False)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

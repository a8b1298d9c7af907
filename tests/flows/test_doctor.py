"""`varband doctor`: what it finds, and that every fault comes with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.doctor import Check, examine
from tests.servers import free_port


def found(root: Path) -> dict[str, list[Check]]:
    by_name: dict[str, list[Check]] = {}
    for check in examine(root):
        by_name.setdefault(check.what, []).append(check)
    return by_name


def test_a_machine_of_one_person_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("VARBAND_OPENAI_BASE_URL", raising=False)
    checks = found(tmp_path)
    assert {"root", "disk", "versions", "engines", "gpus", "server"} <= checks.keys()
    assert [check for group in checks.values() for check in group if check.state == "fail"] == []
    assert checks["server"][0].fix.startswith("one person needs none")


def test_every_fault_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that is a file, a busy GPU, servers that do not answer."""
    (tmp_path / "root").write_text("not a folder")
    (tmp_path / "bin").mkdir()
    (smi := tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200, 10240, 143771'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VARBAND_OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.setenv("VARBAND_OPENAI_PATIENCE", "0.1")
    checks = found(tmp_path / "root")
    wrong = [check for group in checks.values() for check in group if check.state != "ok"]
    assert all(check.fix for check in wrong)
    assert {"root", "server", "engines", "gpus"} <= {check.what for check in wrong}
    assert checks["gpus"][0].found == "NVIDIA H200, 10 of 140 GiB free"

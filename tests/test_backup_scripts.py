"""Backup and restore without an address of the database: neither may fall back on the user's own one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("script", "tool"), [("backup.sh", "pg_dump"), ("restore.sh", "pg_restore")])
def test_no_database_is_taken_for_another(tmp_path: Path, script: str, tool: str) -> None:
    (tmp_path / tool).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / tool).chmod(0o755)
    there = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VARBAND_ROOT": str(tmp_path)}
    done = subprocess.run([REPO / "deploy" / script, tmp_path / "to"], env=there, capture_output=True, text=True)
    assert done.returncode != 0 and "PREFECT_API_DATABASE_CONNECTION_URL" in done.stderr
    assert not (tmp_path / "asked").exists()

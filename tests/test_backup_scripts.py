"""Backup and restore: no database is taken for another, no other account reads a password or the copy."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
PATH = f"{{}}:{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.mark.parametrize(("script", "tool"), [("backup.sh", "pg_dump"), ("restore.sh", "pg_restore")])
def test_no_database_is_taken_for_another(tmp_path: Path, script: str, tool: str) -> None:
    (tmp_path / tool).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / tool).chmod(0o755)
    there = {"PATH": PATH.format(tmp_path), "VARBAND_ROOT": str(tmp_path)}
    done = subprocess.run([REPO / "deploy" / script, tmp_path / "to"], env=there, capture_output=True, text=True)
    assert done.returncode != 0 and "PREFECT_API_DATABASE_CONNECTION_URL" in done.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("script", ["backup.sh", "restore.sh"])
def test_no_other_account_reads_the_password_or_the_copy(tmp_path: Path, script: str) -> None:
    """`ps` shows arguments to everybody; the tools read the password from a file that is gone afterwards."""
    dump = "case $1 in --file=*) touch ${1#--file=};; esac"
    seen = f'printf "%s\\n" "$*" >> {tmp_path}/args; for one; do set -- "$one"; {dump}; done'
    for tool in ("pg_dump", "pg_restore", "varband"):
        kept = f'test -n "$PGPASSFILE" && cp -p "$PGPASSFILE" {tmp_path}/pass'
        (tmp_path / tool).write_text(f"#!/bin/sh\n{kept}\n{seen}\n")
        (tmp_path / tool).chmod(0o755)
    address = "postgresql+asyncpg://us:p%3Aq\\r@db.example:5433/prefect?host=/run"
    there = {"VARBAND_ROOT": str(tmp_path / "root"), "PREFECT_API_DATABASE_CONNECTION_URL": address}
    there |= {"PATH": PATH.format(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    subprocess.run([REPO / "deploy" / script, tmp_path / "to"], env=there, check=True, capture_output=True)
    arguments = (tmp_path / "args").read_text()
    assert "postgresql://us@db.example:5433/prefect?host=/run" in arguments
    assert "p%3A" not in arguments and "p:q" not in arguments
    assert (tmp_path / "pass").read_text() == "*:*:*:*:p\\:q\\\\r\n" and (tmp_path / "pass").stat().st_mode & 0o77 == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    if script == "backup.sh":
        assert (tmp_path / "to").stat().st_mode & 0o77 == 0
        assert (tmp_path / "to" / "prefect.dump").stat().st_mode & 0o77 == 0
    there["PREFECT_API_DATABASE_CONNECTION_URL"] = "postgresql+asyncpg:///prefect?host=/run"  # a socket: no password
    (tmp_path / "pass").unlink()
    subprocess.run([REPO / "deploy" / script, tmp_path / "to"], env=there, check=True, capture_output=True)
    assert "postgresql:///prefect?host=/run" in (tmp_path / "args").read_text() and not (tmp_path / "pass").exists()

"""`deploy/`: backup and restore as written, of a real root and a real database; units that systemd accepts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from tests.chaos.server_faults import api, deployment
from tests.needs import lacks
from tests.servers import REPO, SHRUNK, end, lose_database, postgres, prefect_server

pytestmark = pytest.mark.slow

DEPLOY = REPO / "deploy"


def test_what_was_backed_up_comes_back(tmp_path: Path) -> None:
    """Root and database are lost together; a night that people turned off stays turned off."""
    if shutil.which("pg_dump") is None:
        lacks("postgres", "no pg_dump: apt-get install postgresql-client")
    with postgres() as database, prefect_server(tmp_path / "server", database) as server:
        commands = tmp_path / "bin"
        commands.mkdir()
        (commands / "varband").write_text(
            f"#!/bin/sh\nexec {sys.executable} -c 'from cli.main import main; main()' \"$@\"\n"
        )
        (commands / "varband").chmod(0o755)

        def script(name: str) -> str:
            environment = {**server.environment, "PATH": f"{commands}:{server.environment['PATH']}"}
            done = subprocess.run(
                [str(DEPLOY / name), str(tmp_path / "kept")],
                env=environment,
                cwd=REPO,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        server.varband("server", "deploy")
        wishes = [word for field, value in SHRUNK.items() for word in ("--set", f"{field}={value}")]
        study = [
            "demo",
            "--arms",
            "panel",
            "--root",
            str(server.root),
            "--set",
            "hardware.engine=transformers",
            *wishes,
        ]
        server.varband("run", *study)
        script("backup.sh")
        night = deployment(server, "reeval/reeval")["id"]
        assert api(server, "PATCH", f"/deployments/{night}", {"paused": True}).status_code == 204
        refs, accounts = Store(server.root).refs(), Ledger(server.root).accounts()
        script("backup.sh")
        end(server.process)
        lose_database(database)
        shutil.rmtree(server.root)
        script("restore.sh")
        server.start()
        assert deployment(server, "reeval/reeval")["id"] == night and deployment(server, "reeval/reeval")["paused"]
        assert (Store(server.root).refs(), Ledger(server.root).accounts()) == (refs, accounts) and refs
        planned = json.loads(server.varband("plan", *study, "--json").stdout)
        assert {stage["reused"] for stage in planned["stages"]} == {True}

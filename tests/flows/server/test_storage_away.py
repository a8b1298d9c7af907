"""Object storage that goes away under a run on a live server, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.ledger import Ledger
from storage.roots import root_folder
from tests.chaos.server_faults import start, wait_for, wait_until
from tests.s3_server import object_storage
from tests.servers import postgres, prefect_server

pytestmark = pytest.mark.slow
ROOT = "s3://varband-away/team"
STUDY = """base = "demo"
measures = ["tokens", "g_pass"]
[pool]
synthetic = 8
heldout_per_source = 2
[training]
steps = 2
groups_per_step = 2
eval_every = 2
[passk]
draws = 200
[hardware]
engine = "transformers"
batch_size = 32
[arms.panel]
"""


def test_the_run_is_parked_and_comes_back_without_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "away.toml").write_text(STUDY)
    with object_storage() as storage, postgres() as database, prefect_server(tmp_path, database) as server:
        storage.make_bucket("varband-away")
        settings = {**storage.environment, "VARBAND_CACHE": str(tmp_path / "cache"), "VARBAND_STORAGE_PATIENCE": "5"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        server.environment |= {**settings, "VARBAND_ROOT": ROOT}
        server.varband("server", "deploy")
        server.varband("server", "deploy", str(tmp_path / "away.toml"))
        server.worker("cpu", "cpu-1")
        run = start(server, "experiment/away")
        wait_until(lambda: any("shard-" in line for line in storage.requests()))
        storage.kill()
        wait_for(server, run, "Parked", seconds=300)
        storage.start()
        wait_for(server, run, "Completed", seconds=900)
        book = Ledger(root_folder(ROOT))
        assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0

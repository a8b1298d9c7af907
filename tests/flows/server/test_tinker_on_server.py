"""A study on a Tinker service as a run of the CPU pool: its limit on money, more of it, and its end (extra `tinker`)."""

import os
from pathlib import Path

import pytest

from storage.ledger import Ledger
from storage.records.runs import all_runs
from storage.records.spending import charges
from tests.chaos.server_faults import start, wait_for
from tests.servers import REPO, SMALL, free_port, prefect_server, tinker_server

pytestmark = pytest.mark.slow
PRICES = '[remote."127.0.0.1"]\nprompt = 10\ncompletion = 10\ntraining = 20\n'


def test_it_waits_at_its_limit_on_money_and_goes_on_with_more(tmp_path: Path) -> None:
    pytest.importorskip("tinker")
    path = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
    with tinker_server(tmp_path / "tinker", free_port()) as url:
        keys = {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-test", "PYTHONPATH": path}
        with prefect_server(tmp_path / "study", None, **keys) as server:
            server.root.mkdir(parents=True, exist_ok=True)
            (server.root / "prices.toml").write_text(PRICES)
            server.varband("server", "deploy")
            server.worker("cpu", "cpu-1")
            study = {**SMALL, "engine": "tinker", "name": "on-tinker"}
            run = start(server, "experiment/experiment", study=study, budget={"usd": 0.2})
            wait_for(server, run, "Suspended", seconds=900)
            parked = all_runs(server.root)[0]
            assert parked.state == "parked" and "of 0.2 US dollars" in parked.why
            assert 0 < parked.spent.usd <= 0.2
            more = ("--root", str(server.root), "--budget", "usd=50")
            assert "resumed on the server" in server.varband("resume", parked.id, *more).stdout
            wait_for(server, run, "Completed", seconds=900)
            paid, book = charges(server.root, parked.id).to_pylist(), Ledger(server.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
    assert sum(row["rollouts"] for row in paid) == sum(len(book.keys(account)) for account, _ in book.accounts())
    trained = [row for row in paid if row["kind"] == "training" and not row["rollouts"]]
    assert trained and sum(row["usd"] for row in paid) == pytest.approx(
        sum(row["tokens"] * (20 if row in trained else 10) for row in paid) / 1e6
    )

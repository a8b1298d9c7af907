"""A team's file on a live server: its own budget stops each of its runs, over all the workers that make its pieces, and who
answers the parked run with more lets it go on. Its own measures, its own nightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.runs import Run, all_runs
from storage.records.spending import charges
from tests.chaos.server_faults import api, deployment, start, wait_for
from tests.servers import Server, postgres, prefect_server

pytestmark = pytest.mark.slow

HELD = """base = "demo"
measures = ["tokens", "g_pass"]
[budget]
tokens = 9000
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
[scaffolds.few_shot]
base = "no_panel"
[[scaffolds.few_shot.examples]]
problem = "Start with 12. Add 30. What is the result?"
trace = "12+30=42."
answer = "42"
[arms.panel]
[arms.few_shot]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "held.toml").write_text(HELD)
    with postgres() as database, prefect_server(folder, database) as up:
        up.varband("server", "deploy")
        up.varband("server", "deploy", str(folder / "held.toml"))
        for pool, workers in (("cpu", 1), ("gpu", 2)):
            for i in range(workers):
                up.worker(pool, f"{pool}-{i}")
        yield up


@pytest.fixture(scope="module")
def parked(server: Server) -> Run:
    """Of the deployment as it is: nobody names a budget."""
    run = start(server, "experiment/held", gpu_pool=True)
    wait_for(server, run, "Suspended", seconds=900)
    return all_runs(server.root)[0]


@pytest.fixture(scope="module")
def finished(server: Server, parked: Run) -> Run:
    """Answered as the page of the run lets people answer."""
    assert parked.flow_run is not None
    path = f"/flow_runs/{parked.flow_run}/resume"
    answered = api(server, "POST", path, {"run_input": {"tokens": 5_000_000}})
    assert answered.json()["status"] == "ACCEPT", answered.text
    wait_for(server, parked.flow_run, "Completed", seconds=900)
    return all_runs(server.root)[0]


def shown(server: Server, run: Run, key: str) -> list[dict[str, Any]]:
    asked = {"artifacts": {"flow_run_id": {"any_": [run.flow_run]}, "key": {"any_": [key]}}}
    return api(server, "POST", "/artifacts/filter", {**asked, "sort": "CREATED_DESC"}).json()


def test_its_budget_is_its_wall_on_every_worker(server: Server, parked: Run) -> None:
    assert parked.state == "parked" and "of 9,000 tokens" in parked.why, parked.why
    assert 0 < parked.spent.tokens <= 9000 and parked.budget["tokens"] == 9000
    assert charges(server.root, parked.id)["run"].unique().to_pylist() == [parked.id]
    assert "budget tokens=9000 does not hold: the run would pause" in shown(server, parked, "plan")[-1]["data"]
    assert "of 9,000 tokens" in shown(server, parked, "progress")[0]["data"]


def test_an_answer_raises_it_and_nothing_is_paid_twice(server: Server, parked: Run, finished: Run) -> None:
    assert (finished.id, finished.state) == (parked.id, "finished") and finished.spent.tokens > 9000
    book = Ledger(server.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
    paid = charges(server.root, finished.id)
    assert sum(paid["rollouts"].to_pylist()) == sum(len(book.keys(account)) for account, _ in book.accounts())


def test_only_its_measures_are_made(server: Server, finished: Run) -> None:
    kinds = {ref.kind for ref in Store(server.root).refs()}
    assert {"tokens", "g_pass", "report"} <= kinds and not kinds & {"widths", "votes", "chain", "rescreening"}


def test_its_nightly_looks_at_its_adapters(server: Server, finished: Run) -> None:
    run = start(server, "reeval/held-nightly")
    wait_for(server, run, "Completed", seconds=600)
    found = api(server, "POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}}).json()
    assert any("few_shot" in str(a["data"]) and "panel" in str(a["data"]) for a in found), found


def test_another_budget_in_the_file_is_the_next_run_s_and_the_study_is_the_same(server: Server, finished: Run) -> None:
    """Deployed again, the limit is another and all that was made is reused."""
    file = server.folder / "held.toml"
    file.write_text(HELD.replace("tokens = 9000", "tokens = 10\nusd = 3"))
    before = charges(server.root).num_rows
    assert "renewed" in server.varband("server", "deploy", str(file)).stdout
    assert "usd = 3" in deployment(server, "experiment/held")["parameters"]["study"]["file"]
    run = start(server, "experiment/held")
    wait_for(server, run, "Completed", seconds=600)
    assert charges(server.root).num_rows == before and len(Store(server.root).refs("report")) == 1

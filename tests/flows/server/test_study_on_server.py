"""The real demo study (shrunk) on a live server: what costs on the pool of GPU workers, parked and resumed from a shell,
then what the team does with it: report, regrade, nightly re-evaluation, cleaning up. None of these pays again."""

import html
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.runs import Run, all_runs
from storage.records.spending import charges
from storage.roots import root_folder
from tests.chaos.server_faults import api, start, wait_for, wait_until
from tests.s3_server import object_storage
from tests.servers import REPO, SHRUNK, SMALL, Server, end, postgres, prefect_server

pytestmark = pytest.mark.slow

SECRET = "sk-planted-0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres() as database, prefect_server(tmp_path_factory.mktemp("study"), database) as up:
        up.varband("server", "deploy")
        for pool in ("cpu", "gpu"):
            keys = {"VARBAND_OPENAI_API_KEY": SECRET, "HF_TOKEN": SECRET}
            up.worker(pool, f"{pool}-1", 1, VARBAND_URL="https://varband.example.org/", **keys)
        yield up


def pieces(server: Server, run: Run) -> list[dict[str, Any]]:
    """The flow runs that made what costs, each an artifact or a shard of rollouts."""
    tag = {"tags": {"all_": [f"of:{run.flow_run}"]}}
    return api(server, "POST", "/flow_runs/filter", {"flow_runs": tag}).json()


@pytest.fixture(scope="module")
def parked(server: Server) -> Run:
    study = {**SMALL, "name": "a-small-demo"}
    run = start(server, "experiment/experiment", study=study, budget={"tokens": 9000}, gpu_pool=True)
    assert wait_for(server, run, "Suspended", seconds=900)["name"] == "a-small-demo"
    return all_runs(server.root)[0]


@pytest.fixture(scope="module")
def finished(server: Server, parked: Run) -> Run:
    said = server.varband("resume", parked.id, "--root", str(server.root), "--budget", "tokens=5e6").stdout
    assert "resumed on the server" in said
    assert parked.flow_run is not None
    wait_for(server, parked.flow_run, "Completed", seconds=900)
    return all_runs(server.root)[0]


def logged(server: Server, run: Run) -> str:
    asked = {"logs": {"flow_run_id": {"any_": [run.flow_run]}}, "sort": "TIMESTAMP_DESC"}
    return "\n".join(line["message"] for line in api(server, "POST", "/logs/filter", asked).json())


def test_at_the_wall_a_worker_gives_its_gpu_back_and_the_study_waits(server: Server, parked: Run) -> None:
    assert parked.state == "parked" and "tokens more are missing" in parked.why
    assert "is under way" not in parked.why, "workers have what is, and the parent made its last stage"
    assert f"{parked.stages_done} of {parked.stages} stages are done" in parked.why
    assert 0 < parked.spent.tokens <= 9000, "the wall was crossed"
    assert "Parked" in {piece["state"]["name"] for piece in pieces(server, parked)}
    wait_until(lambda: parked.why in logged(server, parked), 60)  # lines are sent in batches


def test_the_page_of_a_run_shows_stage_money_and_time(server: Server, parked: Run) -> None:
    at_the_wall = [piece["id"] for piece in pieces(server, parked) if piece["state"]["name"] == "Parked"]
    found = api(server, "POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": at_the_wall}}}).json()
    assert {card["key"] for card in found} == {"progress"}
    assert any("left" in card["description"] for card in found)
    assert any("| tokens |" in card["data"] and "| 9,000 |" in card["data"] for card in found)


def test_resumed_it_finishes_with_nothing_sampled_twice(server: Server, parked: Run, finished: Run) -> None:
    assert (finished.id, finished.state) == (parked.id, "finished")
    states = [piece["state"]["name"] for piece in pieces(server, parked)]
    assert set(states) == {"Completed", "Parked"} and states.count("Completed") > 3
    book = Ledger(server.root)
    assert sum(book.duplicates(account) for account, _ in book.accounts()) == 0
    paid = charges(server.root, finished.id)
    assert sum(paid["rollouts"].to_pylist()) == sum(len(book.keys(account)) for account, _ in book.accounts())


@pytest.mark.parametrize(
    ("deployment", "parameters"),
    [
        ("plan", {"study": SMALL}),
        ("experiment", {"study": SMALL}),
        ("regrade", {}),
        ("reeval", {"studies": [SMALL], "canary_tokens": 0}),
        ("gc", {"older_than_days": 0, "remove": True}),
    ],
)
def test_what_is_done_with_a_finished_study_pays_nothing(
    server: Server, finished: Run, deployment: str, parameters: dict[str, Any]
) -> None:
    before, reports = charges(server.root).num_rows, Store(server.root).refs("report")
    run = start(server, f"{deployment}/{deployment}", **parameters)
    wait_for(server, run, "Completed", seconds=600)
    assert charges(server.root).num_rows == before
    assert Store(server.root).refs("report") == reports
    kept = {"flow_run_id": {"any_": [run]}}
    cards = api(server, "POST", "/artifacts/filter", {"artifacts": kept}).json()
    assert cards, "nothing to see in the UI"
    if deployment == "experiment":
        assert any("![Chart of the answer](data:image/png;base64," in card["data"] for card in cards)


def test_the_report_is_linked_over_http_and_names_the_command_that_makes_it_again(
    server: Server, finished: Run
) -> None:
    (report,) = Store(server.root).refs("report")
    page = f"https://varband.example.org/?run={report}"
    asked = {"artifacts": {"flow_run_id": {"any_": [finished.flow_run]}}, "sort": "CREATED_DESC"}  # as the UI asks
    found = api(server, "POST", "/artifacts/filter", asked)
    assert [card["key"] for card in found.json()] == ["report", "plan", "progress"], "in this order, and no more"
    assert f"({page})" in found.json()[0]["data"] and "Parked" not in str(found.json())
    assert page in logged(server, finished) and "report.html" in logged(server, finished)
    command = Store(server.root).manifest(report).provenance.command
    assert html.escape(command) in (Store(server.root).files(report) / "report.html").read_text()
    name, verb, *wishes = shlex.split(command)
    assert (name, verb) == ("varband", "run")
    planned = json.loads(server.varband("plan", *wishes, "--root", str(server.root), "--json").stdout)
    assert {step["reused"] for step in planned["stages"]} == {True}


def test_a_planted_key_is_in_no_file_log_artifact_or_parameter(server: Server, finished: Run) -> None:
    files = [p for p in server.folder.rglob("*") if p.is_file()]
    assert len(files) > 50
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []
    for kept in ("logs", "artifacts", "flow_runs", "task_runs"):
        pages = [api(server, "POST", f"/{kept}/filter", {"offset": 200 * i, "limit": 200}) for i in range(20)]
        assert pages[0].json() and SECRET not in "".join(page.text for page in pages)


# Object storage that goes away under a run on a live server, and comes back.


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


# Workers with a checkout, an environment and a root of their own: what differs is said before anything is paid.


@pytest.fixture(scope="module")
def other_hosts_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres() as database, prefect_server(tmp_path_factory.mktemp("hosts"), database) as up:
        up.varband("server", "deploy")
        up.worker("cpu", "cpu-1")
        yield up


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, as another host has it: these files, one commit further."""
    home = tmp_path_factory.mktemp("host") / "varband"
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPO / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, home / name)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "one commit further"]):
        subprocess.run(["git", "-C", str(home), *words], check=True, capture_output=True)
    return home


def commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def refused(other_hosts_server: Server, name: str, **environment: str) -> str:
    """What a study says whose arm comes to a worker with this environment."""
    other_hosts_server.worker("gpu", name, limit=1, **environment)
    run = start(other_hosts_server, "experiment/experiment", study=SMALL, gpu_pool=True)
    try:
        found = wait_for(other_hosts_server, run, "Failed")
    except AssertionError:
        found = api(other_hosts_server, "GET", f"/flow_runs/{run}").json()
    end(other_hosts_server.workers[name])
    assert found["state"]["name"] == "Failed", found["state"]
    message = found["state"]["message"]
    assert "nothing was paid" in message and message.count("\n") == 0
    assert charges(other_hosts_server.root).num_rows == 0
    (record,) = all_runs(other_hosts_server.root)
    assert record.state == "failed" and "nothing was paid" in record.why
    return message


def test_a_worker_runs_its_own_checkout_and_another_commit_is_refused(
    other_hosts_server: Server, elsewhere: Path
) -> None:
    said = refused(other_hosts_server, "gpu-far", PYTHONPATH=str(elsewhere))
    assert f"code {commit(elsewhere)}" in said and f"instead of {commit(REPO)}" in said


def test_another_root_is_refused(other_hosts_server: Server, tmp_path: Path) -> None:
    said = refused(other_hosts_server, "gpu-alone", VARBAND_ROOT=str(tmp_path / "own"))
    assert str(tmp_path / "own") in said and "VARBAND_ROOT is another root" in said


def test_a_name_that_somebody_typed_stays_and_settings_are_tags(other_hosts_server: Server) -> None:
    found = api(other_hosts_server, "GET", "/deployments/name/experiment/experiment").json()
    body = {"name": "a colder panel", "parameters": {"study": SMALL | {"seeds": [3]}, "budget": {"tokens": 10}}}
    run = api(other_hosts_server, "POST", f"/deployments/{found['id']}/create_flow_run", body).json()["id"]
    ended = wait_for(other_hosts_server, run, "Suspended")
    assert ended["name"] == "a colder panel"
    assert {"profile=demo", "arms=panel", "seeds=3", *(f"{field}={value}" for field, value in SHRUNK.items())} <= set(
        ended["tags"]
    )

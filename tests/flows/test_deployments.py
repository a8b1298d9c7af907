"""A real Prefect server on a real Postgres: deployments, forms that refuse, workers, dispatch, kills.

One server for all tests; its toy flows make artifacts slowly, so that there is time to kill what makes them.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import REPO, Server, end, postgres, prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prefect")
    with postgres() as database, prefect_server(folder, database) as up:
        up.root.mkdir()
        up.varband("deploy")
        register_toys(up)
        yield up


@pytest.fixture(scope="module")
def workers(server: Server) -> None:
    server.worker("cpu", "cpu-1", limit=2)
    server.worker("gpu", "gpu-1", limit=1)


def register_toys(server: Server) -> None:
    code = (
        "from prefect.flows import Flow\n"
        "for name, pool in (('toyarm', 'gpu'), ('toyparent', 'cpu')):\n"
        f"    flow = Flow.from_source(source={str(REPO)!r}, entrypoint=f'tests/flows/toy_flows.py:{{name}}')\n"
        "    flow.deploy(name=name, work_pool_name=pool, build=False, push=False, print_next_steps=False)\n"
    )
    process = server.spawn(["-c", code], "toys.log")
    assert process.wait(240) == 0, (server.folder / "toys.log").read_text()[-2000:]


def api(server: Server, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = httpx.request(method, f"{server.url}/api{path}", json=body, timeout=60)
    return answer


def deployment(server: Server, name: str) -> dict[str, Any]:
    return api(server, "GET", f"/deployments/name/{name}").json()


def start(server: Server, name: str, /, **parameters: Any) -> str:
    made = api(
        server, "POST", f"/deployments/{deployment(server, name)['id']}/create_flow_run", {"parameters": parameters}
    )
    assert made.status_code == 201, made.text
    return made.json()["id"]


def state_of(server: Server, run: str) -> dict[str, Any]:
    return api(server, "GET", f"/flow_runs/{run}").json()


def wait_for(server: Server, run: str, *states: str, seconds: float = 300) -> dict[str, Any]:
    until, found = time.monotonic() + seconds, state_of(server, run)
    while time.monotonic() < until:
        if found["state"]["name"] in states:
            return found
        if found["state"]["type"] in ("COMPLETED", "FAILED", "CANCELLED"):
            break
        time.sleep(1)
        found = state_of(server, run)
    logs = "".join(p.read_text()[-1500:] for p in server.folder.glob("worker-*.log"))
    raise AssertionError(f"{found['state']['name']}: {found['state']['message']}; waited for {states}\n{logs}")


def children(server: Server, tag: str) -> list[dict[str, Any]]:
    return api(server, "POST", "/flow_runs/filter", {"flow_runs": {"tags": {"all_": [tag]}}}).json()


def wait_until(condition: Any, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.5)


def lines(server: Server, name: str) -> list[str]:
    path = server.root / name
    return path.read_text().splitlines() if path.exists() else []


def test_deploying_twice_changes_nothing(server: Server) -> None:
    def known() -> tuple[list[str], list[str], list[tuple[str, int]]]:
        deployments = api(server, "POST", "/deployments/filter", {}).json()
        automations = api(server, "POST", "/automations/filter", {}).json()
        queues = api(server, "POST", "/work_pools/gpu/queues/filter", {}).json()
        return (
            sorted(d["name"] for d in deployments if "varband" in d["tags"]), sorted(a["name"] for a in automations),
            sorted((q["name"], q["priority"]) for q in queues if q["name"] != "default"),
        )  # fmt: skip

    before = known()
    server.varband("deploy")
    assert known() == before
    assert before[0] == ["arm", "experiment", "gc", "reeval", "regrade", "report"]
    assert before[2] == [("experiments", 1), ("nightly", 10)], "nightly work comes after experiments"


def test_the_nightly_run_is_scheduled_with_its_time_zone_and_waits_instead_of_being_dropped(server: Server) -> None:
    nightly = deployment(server, "reeval/reeval")
    schedule = nightly["schedules"][0]["schedule"]
    assert (schedule["cron"], schedule["timezone"]) == ("0 2 * * *", "UTC")
    assert nightly["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    wait_until(lambda: api(server, "POST", "/flow_runs/filter", {"deployments": {"name": {"any_": ["reeval"]}}}).json())


WRONG = [
    ({"study": {"profile": "dmeo"}}, "study.profile"),
    ({"study": {"arms": ["panle"]}}, "study.arms"),
    ({"study": {"arms": ["panel", "panel"]}}, "study.arms"),
    ({"study": {"seeds": [-1]}}, "study.seeds"),
    ({"study": {"seeds": [1.5]}}, "study.seeds"),
    ({"study": {"limit": 0}}, "study.limit"),
    ({"study": {"settings": ["no equals sign"]}}, "study.settings"),
    ({"study": {"prfile": "demo"}}, "prfile"),
    ({"budget": {"tokens": -5}}, "budget.tokens"),
    ({"budget": {"usd": "many"}}, "budget.usd"),
    ({"gpu_pool": "perhaps"}, "gpu_pool"),
    ({"stduy": {}}, "stduy"),
]


@pytest.mark.parametrize(("parameters", "names"), WRONG, ids=[names for _, names in WRONG])
def test_a_wrong_form_is_refused_and_the_refusal_names_the_field(
    server: Server, parameters: dict[str, Any], names: str
) -> None:
    path = f"/deployments/{deployment(server, 'experiment/experiment')['id']}/create_flow_run"
    answer = api(server, "POST", path, {"parameters": parameters})
    assert answer.status_code in (409, 422) and names in answer.text


def test_arms_run_one_a_gpu_and_warm_the_store(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["a", "b"], seconds=3)
    wait_for(server, run, "Completed")
    assert Counter(lines(server, "paid.log")) == Counter(f"{n} {i}" for n in "ab" for i in range(3))
    spans = [(c["start_time"], c["end_time"]) for n in "ab" for c in children(server, f"makes:toy:{n}")]
    (_, first_end), (second_start, _) = sorted(spans)
    assert len(spans) == 2 and first_end <= second_start, "two runs shared the one GPU"


def test_a_killed_parent_comes_back_and_attaches_to_its_child(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["c"], seconds=25)
    wait_until(lambda: "c 1" in lines(server, "paid.log"))
    os.kill(int((server.root / "parent.pid").read_text()), signal.SIGKILL)
    finished = wait_for(server, run, "Completed")
    assert finished["run_count"] >= 2
    assert len(children(server, "makes:toy:c")) == 1, "a second run was paid for"
    assert max(Counter(line for line in lines(server, "paid.log") if line.startswith("c ")).values()) == 1


def test_a_killed_child_is_started_again_and_goes_on(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["d"], seconds=12)
    wait_until(lambda: "d 3" in lines(server, "paid.log"))
    os.kill(int(lines(server, "started.log")[-1].split()[1]), signal.SIGKILL)
    wait_for(server, run, "Completed")
    paid = Counter(line for line in lines(server, "paid.log") if line.startswith("d "))
    assert set(paid) == {f"d {i}" for i in range(12)}
    assert sum(paid.values()) <= 13, "more than the second at work was paid for twice"


def test_cancelling_the_parent_cancels_the_child(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["e"], seconds=300)
    wait_until(lambda: "e 0" in lines(server, "paid.log"))
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    api(server, "POST", f"/flow_runs/{run}/set_state", state)
    wait_for(server, run, "Cancelled")
    wait_until(lambda: {c["state"]["name"] for c in children(server, "makes:toy:e")} == {"Cancelled"})
    paid = len(lines(server, "paid.log"))
    time.sleep(3)
    assert len(lines(server, "paid.log")) == paid, "the cancelled child went on"


def test_the_server_may_be_killed_while_a_run_is_on(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["f"], seconds=20)
    wait_until(lambda: "f 2" in lines(server, "paid.log"))
    end(server.process)
    time.sleep(3)
    server.start()
    wait_for(server, run, "Completed", seconds=420)
    assert {f"f {i}" for i in range(20)} <= set(lines(server, "paid.log"))


def test_a_lost_machine_is_noticed_and_its_run_finishes_elsewhere(server: Server, workers: None) -> None:
    """Worker and flow process die together, as with a lost host; nobody reports the crash but the missing heartbeat."""
    machine = server.worker("lost", "lost-1") if _lost_pool(server) else None
    assert machine is not None
    run = start(server, "toyarm/lost", name="g", seconds=45)
    wait_until(lambda: "g 2" in lines(server, "paid.log"))
    os.kill(int(lines(server, "started.log")[-1].split()[1]), signal.SIGKILL)
    end(machine)
    server.worker("lost", "lost-2")
    finished = wait_for(server, run, "Completed", seconds=420)
    assert finished["run_count"] == 2
    paid = Counter(line for line in lines(server, "paid.log") if line.startswith("g "))
    assert sum(paid.values()) <= 46


def _lost_pool(server: Server) -> bool:
    api(server, "POST", "/work_pools/", {"name": "lost", "type": "process"})
    code = (
        "from prefect.flows import Flow\n"
        f"flow = Flow.from_source(source={str(REPO)!r}, entrypoint='tests/flows/toy_flows.py:toyarm')\n"
        "flow.deploy(name='lost', work_pool_name='lost', build=False, push=False, print_next_steps=False)\n"
    )
    return server.spawn(["-c", code], "toys.log").wait(240) == 0


def test_doctor_knows_the_server_its_pools_and_workers(server: Server, workers: None, tmp_path: Path) -> None:
    said = server.varband("doctor", "--root", str(tmp_path)).stdout
    assert "runs Prefect 3.7.7" in said and "cpu: 1 workers" in said and "6 deployments" not in said.split("pools")[0]

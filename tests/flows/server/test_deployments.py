"""A real Prefect server on a real Postgres: deployments, forms that refuse, workers, dispatch, kills.

One server for all tests; its toy flows make artifacts slowly, so that there is time to kill what makes them.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from flows.running.on_prefect import TRIES
from tests.chaos.server_faults import (
    FAULTS,
    api,
    done,
    lines,
    process_of,
    register_toys,
    runs_making,
    start,
    tried,
    wait_for,
    wait_until,
)
from tests.servers import Server, postgres, prefect_server

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prefect")
    with postgres() as database, prefect_server(folder, database) as up:
        up.root.mkdir()
        up.varband("server", "deploy")
        register_toys(up)
        yield up


@pytest.fixture(scope="module")
def workers(server: Server) -> None:
    server.worker("cpu", "cpu-1", limit=2)
    server.worker("gpu", "gpu-1", limit=1)


def test_deploying_twice_changes_nothing(server: Server) -> None:
    def known() -> tuple[list[str], list[str], list[tuple[str, int]]]:
        deployments = api(server, "POST", "/deployments/filter", {}).json()
        automations = api(server, "POST", "/automations/filter", {}).json()
        queues = api(server, "POST", "/work_pools/gpu/queues/filter", {}).json()
        return (
            sorted(d["name"] for d in deployments if "varband" in d["tags"]),
            sorted(a["name"] for a in automations),
            sorted((q["name"], q["priority"]) for q in queues if q["name"] != "default"),
        )

    before = known()
    server.varband("server", "deploy")
    assert known() == before
    assert before[0] == ["experiment", "gc", "plan", "reeval", "regrade", "zz_make"]
    assert before[2] == [("experiments", 1), ("nightly", 10)], "nightly work comes after experiments"


def test_arms_run_one_a_gpu_and_warm_the_store(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["a", "b"], seconds=3)
    wait_for(server, run, "Completed")
    assert Counter(lines(server, "paid.log")) == Counter(f"{n} {i}" for n in "ab" for i in range(3))
    spans = [(c["start_time"], c["end_time"]) for n in "ab" for c in runs_making(server, n)]
    (_, first_end), (second_start, _) = sorted(spans)
    assert len(spans) == 2 and first_end <= second_start, "two runs shared the one GPU"


def test_a_nightly_run_waits_while_an_experiment_wants_the_gpu(server: Server, workers: None) -> None:
    start(server, "toyarm/toyarm", queue="experiments", name="busy", seconds=15)
    wait_until(lambda: done(server, "busy"))
    night = start(server, "toyarm/toyarm", queue="nightly", name="night", seconds=1)
    day = start(server, "toyarm/toyarm", queue="experiments", name="day", seconds=1)
    for run in (day, night):
        wait_for(server, run, "Completed")
    order = [line.split()[0] for line in lines(server, "started.log")]
    assert order.index("day") < order.index("night"), "the nightly run delayed an experiment"


def test_cancelling_the_parent_cancels_the_child(server: Server, workers: None) -> None:
    run = start(server, "toyparent/toyparent", names=["e"], seconds=300)
    wait_until(lambda: done(server, "e"))
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    api(server, "POST", f"/flow_runs/{run}/set_state", state)
    wait_for(server, run, "Cancelled")
    wait_until(lambda: {c["state"]["name"] for c in runs_making(server, "e")} == {"Cancelled"})
    paid = len(lines(server, "paid.log"))
    time.sleep(3)
    assert len(lines(server, "paid.log")) == paid, "the cancelled child went on"


def test_a_run_that_is_lost_again_and_again_is_left_to_people(server: Server, workers: None) -> None:
    run = start(server, "toyarm/toyarm", name="lost", seconds=300)
    for times in range(1, TRIES + 2):
        wait_until(
            lambda times=times: Counter(line.split()[0] for line in lines(server, "started.log"))["lost"] == times
        )
        os.kill(process_of(server, "lost"), signal.SIGKILL)
    time.sleep(15)  # an automation acts within a few seconds
    ended = wait_for(server, run, "Crashed")
    assert ended["run_count"] == TRIES + 1


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_the_run_finishes_and_nothing_is_paid_for_twice(
    server: Server, workers: None, fault: str
) -> None:
    tried(FAULTS[fault], server, f"work-{list(FAULTS).index(fault)}", random.Random(fault))

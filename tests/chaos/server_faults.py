"""Faults of what a Prefect server runs, each as a function: break it at a random moment, see the run finish.

The work is a toy that counts its seconds into a file which outlives a kill (`tests/flows/server/toy_flows.py`), so that what
was done twice can be counted. Recovery is the time from the fault to the end, less the seconds of work then left.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from flows.server.deployments import LOST_SECONDS
from tests.servers import REPO, Server, end, lose_database

#: Seconds of work, of the toy; a fault comes after the first and before the last few.
WORK = 12
#: A parent must come back while its arm still works, or there is nothing to attach to.
LONG_WORK = 60


def api(server: Server, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    user, _, password = server.password.partition(":")
    return httpx.request(method, f"{server.url}/api{path}", json=body, timeout=60, auth=(user, password))


def deployment(server: Server, name: str) -> dict[str, Any]:
    return api(server, "GET", f"/deployments/name/{name}").json()


def start(server: Server, name: str, /, queue: str | None = None, **parameters: Any) -> str:
    path = f"/deployments/{deployment(server, name)['id']}/create_flow_run"
    made = api(server, "POST", path, {"parameters": parameters, "work_queue_name": queue})
    assert made.status_code == 201, made.text
    return made.json()["id"]


def wait_for(server: Server, run: str, *states: str, seconds: float = 420) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while True:
        found = api(server, "GET", f"/flow_runs/{run}").json()
        if found["state"]["name"] in states:
            return found
        over = found["state"]["type"] in ("COMPLETED", "FAILED", "CANCELLED")
        assert not over and time.monotonic() < until, (
            f"{found['state']['name']}: {found['state']['message']}; waited for {states}\n{logs(server)}"
        )
        time.sleep(1)


def logs(server: Server) -> str:
    return "".join(f"\n--- {p.name}\n{p.read_text()[-1500:]}" for p in server.folder.glob("worker-*.log"))


def runs_making(server: Server, name: str) -> list[dict[str, Any]]:
    tag = {"tags": {"all_": [f"makes:toy:{name}"]}}
    return api(server, "POST", "/flow_runs/filter", {"flow_runs": tag}).json()


def wait_until(condition: Callable[[], Any], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.25)


def lines(server: Server, name: str) -> list[str]:
    path = server.root / name
    return path.read_text().splitlines() if path.exists() else []


def done(server: Server, name: str) -> Counter[str]:
    """Second of work → how often it was done."""
    return Counter(line.split()[1] for line in lines(server, "paid.log") if line.split()[0] == name)


def process_of(server: Server, name: str) -> int:
    return int([line for line in lines(server, "started.log") if line.split()[0] == name][-1].split()[1])


def register_toys(server: Server) -> None:
    code = (
        "from prefect.flows import Flow\n"
        "for name, pool in (('toyarm', 'gpu'), ('toyparent', 'cpu')):\n"
        f"    flow = Flow.from_source(source={str(REPO)!r}, entrypoint=f'tests/flows/server/toy_flows.py:{{name}}')\n"
        "    flow.deploy(name=name, work_pool_name=pool, build=False, push=False, print_next_steps=False,\n"
        "                job_variables={'env': {'PREFECT_FLOWS_HEARTBEAT_FREQUENCY': '30'}})\n"
    )
    process = server.spawn(["-c", code], "toys.log")
    assert process.wait(240) == 0, (server.folder / "toys.log").read_text()[-2000:]


#: (server, name of the work, its run) → the run to wait for, if it is another one.
Fault = Callable[[Server, str, str], str | None]


def tried(fault: Fault, server: Server, name: str, rng: random.Random, twice: int = 1) -> float:
    """Seconds lost to the fault. name: a new one. twice: seconds of work that may be done again."""
    longer: dict[Fault, int] = {parent_killed: LONG_WORK, server_away: 2 * LOST_SECONDS}
    work = longer.get(fault, WORK)
    run = start(server, "toyparent/toyparent", names=[name], seconds=work)
    target = rng.randrange(1, WORK - 4)
    wait_until(lambda: len(done(server, name)) >= target)
    time.sleep(rng.random())
    since, left = time.monotonic(), work - len(done(server, name))
    run = fault(server, name, run) or run
    wait_for(server, run, "Completed")
    recovery = time.monotonic() - since - left
    paid = done(server, name)
    assert set(paid) == {str(i) for i in range(work)}, "work was lost"
    assert sum(paid.values()) <= work + twice, f"work was done twice: {paid}"
    return max(0.0, recovery)


def parent_killed(server: Server, name: str, run: str) -> None:
    os.kill(int((server.root / "parent.pid").read_text()), signal.SIGKILL)
    wait_until(lambda: api(server, "GET", f"/flow_runs/{run}").json()["run_count"] >= 2)
    assert len(runs_making(server, name)) == 1, "a second run was paid for"


def arm_killed(server: Server, name: str, run: str) -> None:
    os.kill(process_of(server, name), signal.SIGKILL)


def arm_terminated(server: Server, name: str, run: str) -> None:
    os.kill(process_of(server, name), signal.SIGTERM)


def worker_killed(server: Server, name: str, run: str) -> None:
    """The worker alone: the run that it started goes on by itself; a new worker takes what comes next."""
    server.workers["gpu-1"].kill()
    server.worker("gpu", "gpu-1")


def machine_lost(server: Server, name: str, run: str) -> None:
    """Worker and flow process at once: nobody reports the crash but the missing heartbeat."""
    worker = server.workers["gpu-1"]
    os.kill(process_of(server, name), signal.SIGKILL)
    end(worker)
    server.worker("gpu", "gpu-1")


def server_killed(server: Server, name: str, run: str) -> None:
    end(server.process)
    time.sleep(3)
    server.start()


def power_cut(server: Server, name: str, run: str) -> None:
    """Server, workers and all that they ran, at once; back 3 s later. Only beats that stopped tell what was lost."""
    for worker in ("cpu-1", "gpu-1"):
        server.workers[worker].kill()
    for pid in (int((server.root / "parent.pid").read_text()), process_of(server, name)):
        os.kill(pid, signal.SIGKILL)
    end(server.process)
    time.sleep(3)
    server.start()
    server.worker("cpu", "cpu-1", limit=2)
    server.worker("gpu", "gpu-1")


def server_away(server: Server, name: str, run: str) -> None:
    """Longer than a machine may be silent: what works on meanwhile is not lost."""
    end(server.process)
    time.sleep(LOST_SECONDS + 30)
    server.start()


def database_lost(server: Server, name: str, run: str) -> str:
    """All that the server knew is gone, under the feet of workers and runs. The server is set up again and the same is
    asked for again: what was done is in the store, not in the database."""
    lose_database(server.database)
    end(server.process)
    server.start()
    server.varband("server", "deploy")
    register_toys(server)
    return start(server, "toyparent/toyparent", names=[name], seconds=WORK)


#: What is done → how. The database goes last: it takes the toys' earlier runs with it.
FAULTS: dict[str, Fault] = {
    "kill -9 of the parent's process": parent_killed,
    "kill -9 of an arm's process": arm_killed,
    "SIGTERM to an arm's process (pre-emption)": arm_terminated,
    "kill -9 of the worker": worker_killed,
    "kill -9 of worker and arm together (lost machine)": machine_lost,
    "kill -9 of the Prefect server, back 3 s later": server_killed,
    "kill -9 of server, workers and runs together (power cut)": power_cut,
    "kill -9 of the Prefect server, back after two minutes": server_away,
    "the server's database gone": database_lost,
}

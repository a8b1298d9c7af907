"""The same DAG under Prefect: flows `experiment` and `arm`, one task a stage, states that show reuse.

The store decides, Prefect orchestrates: tasks run with NO_CACHE and end in a state named `Cached` on a store hit.
Without a server at PREFECT_API_URL, each run starts a private one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from flows.experiment import experiment
from flows.running.plan import begin_sampler, execute, samples
from flows.running.sessions import stages_of
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import Notice, Parked
from tasks.engines.environment import quiet_libraries
from tasks.stage import Progress, Step

T = TypeVar("T")
#: Name of the state of a run, sub-flow or task that waits for money.
PARKED = "Parked"


#: The private server. It ends when its standard input is closed, however the process that started it ended.
SERVE = """
import os, sys, threading, uvicorn
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
uvicorn.run("prefect.server.api.server:create_app", factory=True, fd=int(sys.argv[1]), log_level="error")
"""


def prefect_settings(store: Store) -> dict[str, str]:
    """Return what Prefect must know before it is imported. Results stay beside the store, because Prefect 3.7.7 ignores
    PREFECT_HOME for them."""
    return {
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str((store.root / ".prefect").resolve()),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_CLIENT_MAX_RETRIES": "3",
    }


@contextmanager
def private_server() -> Iterator[None]:
    """Send the block's flow runs to a Prefect server with a database and a session of its own.

    Parallel runs would lock each other's SQLite, and Ctrl-C would end a server in the terminal's process group before
    the run that talks to it. Errors: httpx.TransportError if it does not come up.
    """
    import httpx
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with TemporaryDirectory(prefix="varband-prefect-", ignore_cleanup_errors=True) as folder:
        # Clients may connect, and wait, before the server answers. Only the server holds the socket afterwards.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            api = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
            server = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(listening.fileno())],
                pass_fds=[listening.fileno()],
                env=os.environ
                | {
                    "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{Path(folder, 'prefect.db')}",
                    "PREFECT__SERVER_EPHEMERAL": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            httpx.get(f"{api}/health", timeout=300).raise_for_status()
            with temporary_settings({PREFECT_API_URL: api}):
                yield
        finally:
            server.kill()
            server.communicate()


def orchestrated(study: Study, store: Store, listener: Callable[[Progress], None]) -> Ref:
    """Run the experiment as a Prefect flow in this process; plainly where Prefect is not installed, or not any more.

    The server only watches: when it dies, what is made is in the store, and the rest is made without it.
    """
    if find_spec("prefect") is None:
        return execute(study, store, listener)
    quiet_libraries()
    for name, value in prefect_settings(store).items():
        os.environ.setdefault(name, value)
    from httpx import TransportError
    from prefect import flow

    @flow(name="experiment", flow_run_name=study.profile.called, validate_parameters=False, persist_result=False)
    def run_experiment() -> Ref:
        return under_prefect(study, store, listener, experiment)

    try:
        with nullcontext() if os.environ.get("PREFECT_API_URL") else private_server():
            return run_experiment()
    except TransportError as error:
        warnings.warn(Notice(f"Prefect's server does not answer any more ({error}): going on without it"), stacklevel=2)
        return execute(study, store, listener)


def under_prefect(
    study: Study,
    store: Store,
    listener: Callable[[Progress], None],
    dag: Callable[[Study], T],
    before: Callable[[Step], None] | None = None,
) -> T:
    """Inside a flow run: carry out a DAG with one task a stage and one sub-flow an arm. before: may refuse a step."""
    name, sampled = study.profile.called, samples(study, store, dag)
    with stages_of(
        study,
        store,
        listener,
        before=before,
        wrap=lambda step, ensure: _as_task(step, ensure, name),
        group=lambda title, body: _as_flow(title, body, name),
    ) as current:
        begin_sampler(study, sampled, current.toolbox)
        return dag(study)


def _as_task(step: Step, ensure: Callable[[], bool], profile: str) -> None:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Cancelled, Completed

    walls: list[Parked] = []

    @task(
        name=step.recipe.stage,
        task_run_name=f"{step.title} · {profile}",
        cache_policy=NO_CACHE,
        persist_result=False,
        description=f"makes {step.ref}",
    )
    def make() -> object:
        try:
            if ensure():
                return Completed(name="Cached", message=f"{step.ref} is in the store", data=str(step.ref))
        except Parked as wall:  # not a failure: shown as what it is, and raised again below
            walls.append(wall)
            return Cancelled(name=PARKED, message=str(wall))
        return str(step.ref)

    state = make(return_state=True)
    if walls:
        raise walls[0]
    state.result()


def _as_flow(title: str, body: Callable[[], T], profile: str) -> T:
    from prefect import flow
    from prefect.states import Cancelled

    walls: list[Parked] = []
    made: list[T] = []

    @flow(name="arm", flow_run_name=f"{title} · {profile}", validate_parameters=False, persist_result=False)
    def run_arm() -> object:
        try:
            made.append(body())
        except Parked as wall:
            walls.append(wall)
            return Cancelled(name=PARKED, message=str(wall))
        return title

    state = run_arm(return_state=True)
    if walls:
        raise walls[0]
    if not made:  # else the body's own word holds: of a request that was sent twice the state has lost its result
        state.result()
    return made[0]

"""The same DAG under Prefect: flows `experiment` and `arm`, one task a stage, states that show reuse.

The store decides, Prefect orchestrates: tasks run with NO_CACHE and end in a state named `Cached` on a store hit.
Without a server at PREFECT_API_URL a run needs no Prefect (docs/decisions/0014-no-private-server.md).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
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


#: What Prefect must know before it is imported.
SETTINGS = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_CLIENT_MAX_RETRIES": "3",
}


def orchestrated(study: Study, store: Store, listener: Callable[[Progress], None]) -> Ref:
    """Run the experiment in this process as a flow of the server at PREFECT_API_URL.

    Without Prefect it runs plainly. The server only watches: when it dies, what is made is in the store, and the rest
    is made without it.
    """
    if find_spec("prefect") is None:
        return execute(study, store, listener)
    quiet_libraries()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # Prefect 3.7.7 ignores PREFECT_HOME for results
    os.environ.setdefault("PREFECT_RESULTS_LOCAL_STORAGE_PATH", str((store.root / ".prefect").resolve()))
    from httpx import TransportError
    from prefect import flow

    @flow(name="experiment", flow_run_name=study.profile.called, validate_parameters=False, persist_result=False)
    def run_experiment() -> Ref:
        return under_prefect(study, store, listener, experiment)

    try:
        return run_experiment()
    except (TransportError, _ServerAway) as error:
        warnings.warn(Notice(f"Prefect's server does not answer any more ({error}): going on without it"), stacklevel=2)
        return execute(study, store, listener)


class _ServerAway(BaseException):
    """Prefect's server does not answer. No Exception, so that it is not taken for a fault of the arm being made."""


@contextmanager
def _server_needed() -> Iterator[None]:
    from httpx import TransportError

    try:
        yield
    except TransportError as error:
        raise _ServerAway(str(error)) from error


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

    with _server_needed():
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

    with _server_needed():
        state = run_arm(return_state=True)
    if walls:
        raise walls[0]
    if not made:  # else the body's own word holds: of a request that was sent twice the state has lost its result
        state.result()
    return made[0]

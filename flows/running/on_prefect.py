"""The same DAG under Prefect: flows `experiment` and `arm`, one task a stage, and pieces of work on a pool of workers.

The store decides, Prefect orchestrates: tasks run with NO_CACHE and end in a state named `Cached` on a store hit.
Without a server at PREFECT_API_URL a run needs no Prefect (docs/decisions/0014-no-private-server.md). A piece of work
has a key, and its runs carry it as a tag: whoever wants it attaches to the run that is alive instead of starting a
second one, so a parent that was killed and retried never pays twice.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from flows.experiment import experiment
from flows.running.plan import begin_sampler, execute, samples
from flows.running.sessions import stages_of
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import ArmsFailed, Notice, Parked
from tasks.engines.environment import quiet_libraries
from tasks.stage import Progress, Step

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


T = TypeVar("T")
#: Name of the state of a run, sub-flow or task that waits for money.
PARKED = "Parked"
#: Name of the state of a piece whose storage did not answer.
AWAY = "Storage away"
#: A lost machine's work is started again this often before somebody must look.
TRIES = 3
POLL_SECONDS = 3.0
#: The server's own automation starts a crashed run again within this time; then it is attached to.
GRACE_SECONDS = 5.0
#: Runs that the server lists at once.
PAGE = 200
LIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")


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


@dataclass(frozen=True, slots=True)
class Work:
    """One run to see finished. key: what it makes, the same for everybody who wants it."""

    key: str
    name: str
    parameters: Mapping[str, Any]

    @property
    def tag(self) -> str:
        return f"makes:{self.key}"


def dispatch(
    deployment: str, wanted: Callable[[Set[str]], Sequence[Work]], tell: Callable[[str], None], *, parent: str
) -> None:
    """See every piece of work finished on the deployment's pool. Returns when nothing is wanted any more.

    wanted: told the keys of what is finished, says what can be worked on now; what is under way may be among it.
    parent: the flow run that wants it; `cancel_children` finds what it started by it.
    Errors: Parked if a run met its budget, once what is under way is finished. ArmsFailed if one failed or was lost too
    often, once everything else is finished.
    """
    from httpx import TransportError
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        done: set[str] = set()
        trouble: dict[str, tuple[Work, FlowRun]] = {}
        runs: dict[str, tuple[Work, UUID]] = {}
        news = True
        while True:
            parked = any(_is_parked(run) for _, run in trouble.values())
            for work in wanted(done) if news and not parked else ():
                if work.key not in runs and work.key not in trouble:
                    runs[work.key] = work, _attach(client, deployment, work, tell, parent)
            if not runs:
                break
            news = False
            for key, (work, run_id) in list(runs.items()):
                try:
                    run = client.read_flow_run(run_id)
                except TransportError:  # the server is away; whoever makes the work goes on
                    continue
                if run.state is None or not run.state.is_final():
                    continue
                if run.state.is_crashed() and _crashes(client, work, parent) <= TRIES:
                    time.sleep(GRACE_SECONDS)
                    tell(f"{work.name}: its machine was lost, starting again")
                    runs[key] = work, _attach(client, deployment, work, tell, parent)
                    continue
                del runs[key]
                news = True
                if run.state.is_completed():
                    done.add(key)
                    continue
                trouble[key] = work, run
                tell(f"{work.name}: {run.state.name}: {run.state.message}")
            if runs and not news:
                time.sleep(POLL_SECONDS)
    for _, run in trouble.values():
        if run.state is not None and _is_parked(run):
            raise Parked(run.state.message)
    if trouble:
        ended = [
            f"{work.name}: {run.state and run.state.name}: {run.state and run.state.message}"
            for work, run in trouble.values()
        ]
        raise ArmsFailed("; ".join(ended))


def _is_parked(run: FlowRun) -> bool:
    return run.state is not None and run.state.name == PARKED


def _attach(client: SyncPrefectClient, deployment: str, work: Work, tell: Callable[[str], None], parent: str) -> UUID:
    """The run that makes this: the one that is alive, else a new one. Two that ask at once get the same."""
    from prefect.deployments import run_deployment

    if alive := [run for run in runs_of(client, work.tag) if run.state_type and run.state_type.value in LIVE]:
        tell(f"{work.name}: attached to run {alive[0].name}, which is under way")
        return alive[0].id
    run: Any = run_deployment(
        deployment,
        parameters=dict(work.parameters),
        flow_run_name=work.name,
        timeout=0,
        tags=[work.tag, child_of(parent)],
        idempotency_key=f"{work.tag}:{_ended(client, work)}",
    )
    tell(f"{work.name}: run {run.name} is queued")
    return run.id


def runs_of(client: SyncPrefectClient, *tags: str) -> list[FlowRun]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags

    found: list[FlowRun] = []
    asked = FlowRunFilter(tags=FlowRunFilterTags(all_=list(tags)))
    while more := client.read_flow_runs(flow_run_filter=asked, limit=PAGE, offset=len(found)):
        found += more
        if len(more) < PAGE:
            break
    return found


def _ended(client: SyncPrefectClient, work: Work) -> int:
    return sum(1 for run in runs_of(client, work.tag) if run.state_type and run.state_type.value not in LIVE)


def _crashes(client: SyncPrefectClient, work: Work, parent: str) -> int:
    """How often the work was lost on behalf of this parent; a run that the server started again counts every start."""
    runs = runs_of(client, work.tag, child_of(parent))
    return sum(max(1, run.run_count) for run in runs if run.state and run.state.is_crashed())


def child_of(parent: str) -> str:
    return f"of:{parent}"


def cancel_children(parent: str) -> None:
    """Cancel what a flow run started and is still alive: a cancelled parent leaves no GPU busy."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    with get_client(sync_client=True) as client:
        for run in runs_of(client, child_of(parent)):
            if run.state_type and run.state_type.value in LIVE:
                client.set_flow_run_state(run.id, Cancelling(message="its parent was cancelled"))

"""Work on a pool of GPU workers, which fill the store. Knows deployments and their runs, not stages.

A piece of work has a key, and its runs carry it as a tag: whoever wants it attaches to the run that is alive instead
of starting a second one, so a parent that was killed and retried never pays twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.running.prefect_tasks import PARKED
from storage.errors import ArmsFailed, Parked

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

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

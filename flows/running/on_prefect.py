"""The same DAG under Prefect: one task per stage, and pieces of work on a worker pool.

The store decides what exists, so tasks run with NO_CACHE, and a task whose artifact exists ends in a state named
`Cached`. Runs from a shell do not use Prefect (docs/decisions/0014-no-private-server.md). The runs of a piece have its
key as a tag. A parent run that was killed and started again waits for the piece's live run, so it never pays twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.running.pieces import Piece
from storage.errors import Parked, UserError
from tasks.stage import Step

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State


#: Name of the state of a run or task that needs a larger budget.
PARKED = "Parked"
#: Name of the state of a piece whose storage did not answer.
AWAY = "Storage away"
#: How often an automation of `flows.server.deployments` starts a run after its machine was lost.
TRIES = 3
POLL_SECONDS = 3.0
#: Most runs that the server lists in one answer.
PAGE = 200
LIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")


def as_task(name: str, step: Step, ensure: Callable[[], bool]) -> None:
    """Make a step in a Prefect task. At the budget limit the task does not fail: its state is `Parked`, and Parked is
    raised. name: of the study."""
    from httpx import TransportError
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Cancelled, Completed

    limits, made = list[Parked](), list[bool]()

    def run() -> object:
        try:
            made.append(ensure())
        except Parked as limit:
            limits.append(limit)
            return Cancelled(name=PARKED, message=str(limit))
        message = f"{step.ref} is in the store"
        return Completed(name="Cached", message=message, data=str(step.ref)) if made[0] else str(step.ref)

    wrap = task(
        name=step.recipe.stage,
        task_run_name=f"{step.title} · {name}",
        cache_policy=NO_CACHE,
        persist_result=False,
        description=f"makes {step.ref}",
    )
    state = None
    with suppress(TransportError):  # the run does not need the server, which only shows it
        state = wrap(run)(return_state=True)
    if limits:
        raise limits[0]
    if not made:  # otherwise the step is made, although the server did not answer
        ensure() if state is None else state.result()


@dataclass(slots=True)
class PrefectPool:
    """The workers of a pool, which run a deployment once per piece. The class knows deployments, but no stages.

    - run: the run that the pieces belong to. Run and key of a piece together identify the work.
    - parent: the flow run that needs the pieces; `cancel_children` finds its children by it.
    - parameters: parameters of a piece's run. label: appended to the names of runs.
    """

    client: SyncPrefectClient
    deployment: str
    run: str
    parent: str
    parameters: Callable[[Piece], dict[str, Any]]
    tell: Callable[[str], None]
    label: str = ""
    _runs: dict[str, tuple[Piece, UUID]] = field(default_factory=dict)

    def begin(self, piece: Piece) -> None:
        """Attach to the piece's live run, or start one. Two callers at the same time get the same run."""
        from prefect.deployments import run_deployment

        known = runs_of(self.client, self._tag(piece))
        if alive := [run for run in known if _is_alive(run)]:
            self.tell(f"{piece.name}: attached to run {alive[0].name}, which is under way")
            self._runs[piece.key] = piece, alive[0].id
            return
        run: Any = run_deployment(
            self.deployment,
            parameters=self.parameters(piece),
            flow_run_name=piece.name + self.label,
            timeout=0,
            tags=[self._tag(piece), child_of(self.parent)],
            idempotency_key=f"{self._tag(piece)}:{len(known)}",
        )
        self.tell(f"{piece.name}: run {run.name} is queued")
        self._runs[piece.key] = piece, run.id

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        ended: list[tuple[Piece, State]] = []
        while not ended:
            ended = self._final_states()
            time.sleep(0 if ended else POLL_SECONDS)
        for piece, state in ended:
            del self._runs[piece.key]
            parked = state.name == PARKED
            error = Parked(state.message) if parked else UserError(f"{state.name}: {state.message}")
            yield piece, None if state.is_completed() else error

    def _final_states(self) -> list[tuple[Piece, State]]:
        """Return the pieces whose runs have ended, by one request. The next call returns those beyond a page."""
        from httpx import TransportError
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterState
        from prefect.client.schemas.filters import FlowRunFilterStateType as Type
        from prefect.client.schemas.objects import TERMINAL_STATES

        of = {run_id: piece for piece, run_id in self._runs.values()}
        final = FlowRunFilterState(type=Type(any_=sorted(TERMINAL_STATES)))
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[*of]), state=final)
        try:
            found = self.client.read_flow_runs(flow_run_filter=wanted, limit=PAGE)
        except TransportError:  # the server does not answer, but the workers go on
            return []
        return [(of[run.id], run.state) for run in found if run.state is not None and not _is_alive(run)]

    def _tag(self, piece: Piece) -> str:
        return f"makes:{self.run}:{piece.key}"


def _is_alive(run: FlowRun) -> bool:
    """Return whether a run has not ended, or was lost and will be started again by an automation of the server."""
    state = run.state_type.value if run.state_type is not None else ""
    return state in LIVE or (state == "CRASHED" and 0 < run.run_count <= TRIES)


def runs_of(client: SyncPrefectClient, *tags: str) -> list[FlowRun]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags

    found: list[FlowRun] = []
    wanted = FlowRunFilter(tags=FlowRunFilterTags(all_=list(tags)))
    while more := client.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=len(found)):
        found += more
        if len(more) < PAGE:
            break
    return found


def child_of(parent: str) -> str:
    return f"of:{parent}"


def cancel_children(parent: str) -> None:
    """Cancel the live runs that a flow run started, so that none occupies a GPU after its parent was cancelled."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    with get_client(sync_client=True) as client:
        for run in runs_of(client, child_of(parent)):
            if _is_alive(run):
                client.set_flow_run_state(run.id, Cancelling(message="its parent was cancelled"))

"""A Prefect server set up for this project: pools with queues, deployments, and the automations that notice lost
machines. Everything is found by name, and what is as it should be is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from flows.running.pool import TRIES
from flows.server import deployments
from flows.server.deployments import DEPLOYMENTS
from storage.errors import UserError
from tasks.engines.environment import quiet_libraries
from tasks.metering import Budget

#: A flow run beats every 30 s (`PREFECT_FLOWS_HEARTBEAT_FREQUENCY`); three missed beats and its machine is lost.
LOST_SECONDS = 90
#: pool → queues with their priority; a lower number is served first.
POOLS = {"cpu": {"default": 1}, "gpu": {"experiments": 1, "nightly": 10}}
FINAL = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused", "Parked")


@contextmanager
def _server() -> Iterator[Any]:
    """The server at PREFECT_API_URL. Errors: UserError if there is none, or it refuses."""
    if not os.environ.get("PREFECT_API_URL"):
        raise UserError(
            "deploy: no server; start one with `prefect server start` and set PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    quiet_libraries()
    from httpx import HTTPStatusError, TransportError
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            yield client
    except TransportError as error:
        raise UserError(f"deploy: {os.environ['PREFECT_API_URL']} does not answer ({error})") from None
    except HTTPStatusError as error:
        raise UserError(f"deploy: the server refused: {error.response.text[:500]}") from None


def register() -> Iterator[str]:
    """Set up the server, saying what was done. What people decided on it stays."""
    with _server() as client:
        for pool, queues in POOLS.items():
            yield from _pool(client, pool, queues)
        for deployment in DEPLOYMENTS:
            yield deployments.deploy(client, deployment)
        yield from _automations(client)


def reset(*, really: bool) -> Iterator[str]:
    """What people decided otherwise than the project suggests: say it, and put it back if `really`."""
    with _server() as client:
        for deployment in DEPLOYMENTS:
            found = list(deployments.decided(client, deployment))
            for field, theirs, ours in found:
                yield f"{deployment.flow}: {field}: {_in_words(theirs)} → {_in_words(ours)}"
            if found and really:
                deployments.reset(client, deployment)


def _in_words(value: Any) -> str:
    """
    >>> _in_words([{"schedule": {"cron": "0 2 * * *", "timezone": "UTC"}, "active": False}])
    '0 2 * * * UTC (off)'
    >>> _in_words([])
    'none'
    """
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(_schedule_in_words(s["schedule"]) + ("" if s["active"] else " (off)") for s in value)
    return str(value) if value or value is False else "none"


def _schedule_in_words(schedule: dict[str, Any]) -> str:
    when = schedule.get("cron") or schedule.get("rrule") or f"every {schedule.get('interval')} s"
    return f"{when} {schedule.get('timezone') or 'UTC'}"


def _pool(client: Any, name: str, queues: dict[str, int]) -> Iterator[str]:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    try:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        yield f"pool {name}: made"
    except ObjectAlreadyExists:
        yield f"pool {name}: there"
    known = {queue["name"] for queue in client.request("POST", f"/work_pools/{name}/queues/filter", json={}).json()}
    for queue, priority in queues.items():
        body = {"name": queue, "priority": priority}
        if queue not in known:
            client.request("POST", f"/work_pools/{name}/queues", json=body)


def _into(state: Any, name: str, message: str) -> Any:
    from prefect.events.actions import ChangeFlowRunState

    return ChangeFlowRunState(state=state, name=name, message=message, force=False)


def _automations(client: Any) -> Iterator[str]:
    from datetime import timedelta

    from prefect.client.schemas.objects import StateType
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    any_run = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
    # bounded: one that was started this often, or that cannot even start, is left to people
    started = ResourceSpecification(
        {"prefect.resource.id": "prefect.flow-run.*", "prefect.run-count": [str(n) for n in range(1, TRIES + 1)]}
    )
    # a sub-flow starts again with its parent; started alone, nothing would ever run it
    deployed = ResourceSpecification({"prefect.resource.role": "deployment"})
    ended = {f"prefect.flow-run.{state}" for state in FINAL}
    lost = AutomationCore(
        name="varband: a lost machine's runs are crashed",
        description=f"no heartbeat for {LOST_SECONDS} s",
        trigger=EventTrigger(
            match=any_run,
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *ended},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=LOST_SECONDS),
        ),
        actions=[_into(StateType.CRASHED, "Crashed", "its machine fell silent")],
    )
    stuck = AutomationCore(
        name="varband: a run stuck in Pending is crashed",
        description="its worker died before it started; it would hold its slot for ever",
        trigger=EventTrigger(
            match=any_run,
            after={"prefect.flow-run.Pending"},
            expect={"prefect.flow-run.Running", *ended},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=300),
        ),
        actions=[_into(StateType.CRASHED, "Crashed", "it never started")],
    )
    again = AutomationCore(
        name="varband: a crashed run starts again",
        description="finished stages are reused; the flow itself gives up after a few attempts",
        trigger=EventTrigger(
            match=started,
            match_related=deployed,
            expect={"prefect.flow-run.Crashed"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[_into(StateType.SCHEDULED, "AwaitingRetry", "after a crash")],
    )
    for automation in (lost, stuck, again):
        yield f"automation {automation.name.partition(': ')[2]}: {_automate(client, automation)}"


def _automate(client: Any, automation: Any) -> str:
    """One that is as it should be is left alone: written anew it would forget the runs that it waits for."""
    asked = {"automations": {"name": {"any_": [automation.name]}}}
    known = client.request("POST", "/automations/filter", json=asked).json()
    body = automation.model_dump(mode="json", exclude={"owner_resource"})
    if not known:
        client.request("POST", "/automations/", json=body)
        return "made"
    body["enabled"] = known[0]["enabled"]
    if all(_content(known[0][name]) == _content(value) for name, value in body.items()):
        return "there"
    client.request("PUT", f"/automations/{known[0]['id']}", json=body)
    return "renewed"


def _content(value: Any) -> Any:
    """Without the ids that every description of a trigger has anew."""
    if isinstance(value, dict):
        return {k: _content(v) for k, v in value.items() if k != "id"}
    return sorted(map(_content, value), key=str) if isinstance(value, list) else value


def resume_suspended(flow_run: str, limits: dict[str, float], budget: str | None) -> bool:
    """Tell a suspended run to go on, with what the new budget adds to its limits. False if it is not suspended."""
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run))
            if run.state is None or not run.state.is_paused():
                return False
            wanted = Budget.parse(budget).limits()
            more = {name: max(0.0, value - limits.get(name, value)) for name, value in wanted.items()}
            answer = client.resume_flow_run(run.id, run_input={"tokens": 0, "gpu_hours": 0, "usd": 0, **more})
    except (HTTPError, ObjectNotFound, ValueError) as error:
        raise UserError(f"resume: the server does not know it ({error}); unset PREFECT_API_URL to go on") from None
    if answer.status.value != "ACCEPT":
        raise UserError(f"resume: the server refused: {getattr(answer.details, 'reason', answer.status.value)}")
    return True

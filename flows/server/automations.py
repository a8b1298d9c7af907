"""What a Prefect server does by itself: it notices lost machines, starts their runs again, and tells people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from flows.running.on_prefect import TRIES

#: A flow run beats every 30 s (`PREFECT_FLOWS_HEARTBEAT_FREQUENCY`); three missed beats and its machine is lost.
LOST_SECONDS = 90
#: What somebody should hear of, by name of the state. A crash is not among them: it starts again by itself.
NOTIFY = ("Failed", "Drifted", "Unchecked", "Parked")
FINAL = ("Completed", "Cancelled", "Crashed", "Suspended", "Paused", *NOTIFY)
#: A suspended run says why in an event, because its state cannot.
PARKED_EVENT = "varband.parked"
LOST_TOO_OFTEN = f"It was lost {TRIES + 1} times and does not start again by itself."
Resource = dict[str, str | list[str]]
ANY_RUN: Resource = {"prefect.resource.id": "prefect.flow-run.*"}
#: Of a run's deployment. Pieces that run on workers are not among them: the run that they work for says it once.
WHOLE: Resource = {"prefect.resource.role": "deployment", "prefect.resource.name": "!zz_make"}
#: A notification block of this name, of whatever kind, is told of NOTIFY.
BLOCK = "varband"


def states(names: tuple[str, ...]) -> set[str]:
    """The events of runs that come to these states."""
    return {f"prefect.flow-run.{name}" for name in names}


def _into(state: Any, name: str, message: str) -> Any:
    from prefect.events.actions import ChangeFlowRunState

    return ChangeFlowRunState(state=state, name=name, message=message, force=False)


def _when(
    match: Resource, *, expect: set[str], related: Resource | None = None, after: str = "", within: int = 0
) -> Any:
    """Of each flow run: that one of these events comes, or with `after` that none has come so many seconds after it."""
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    return EventTrigger(
        match=ResourceSpecification(match),
        match_related=ResourceSpecification(related or {}),
        after={after} if after else set(),
        expect=expect,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive if after else Posture.Reactive,
        threshold=1,
        within=timedelta(seconds=within),
    )


def register(client: Any) -> Iterator[str]:
    from prefect.client.schemas.objects import StateType
    from prefect.events.schemas.automations import AutomationCore

    # bounded: one that was started this often, or that cannot even start, is left to people
    started: Resource = {**ANY_RUN, "prefect.run-count": [str(n) for n in range(1, TRIES + 1)]}
    # a sub-flow starts again with its parent; started alone, nothing would ever run it
    deployed: Resource = {"prefect.resource.role": "deployment"}
    ended, beat = states(FINAL), "prefect.flow-run.heartbeat"
    lost = AutomationCore(
        name="varband: a lost machine's runs are crashed",
        description=f"no heartbeat for {LOST_SECONDS} s",
        trigger=_when(ANY_RUN, after=beat, expect={beat, *ended}, within=LOST_SECONDS),
        actions=[_into(StateType.CRASHED, "Crashed", "its machine fell silent")],
    )
    stuck = AutomationCore(
        name="varband: a run stuck in Pending is crashed",
        description="its worker died before it started; it would hold its slot for ever",
        trigger=_when(
            ANY_RUN, after="prefect.flow-run.Pending", expect={"prefect.flow-run.Running", *ended}, within=300
        ),
        actions=[_into(StateType.CRASHED, "Crashed", "it never started")],
    )
    again = AutomationCore(
        name="varband: a crashed run starts again",
        description="finished stages are reused; the flow itself gives up after a few attempts",
        trigger=_when(started, related=deployed, expect={"prefect.flow-run.Crashed"}),
        actions=[_into(StateType.SCHEDULED, "AwaitingRetry", "after a crash")],
    )
    for automation in (lost, stuck, again, *_notifications(client)):
        yield f"automation {automation.name.partition(': ')[2]}: {_automate(client, automation)}"


def _notifications(client: Any) -> Iterator[Any]:
    """What people are told of and in which words; nothing without a block."""
    from prefect.events.actions import SendNotification
    from prefect.events.schemas.automations import AutomationCore

    asked = {"block_documents": {"name": {"any_": [BLOCK]}}}
    blocks = [
        block
        for block in client.request("POST", "/block_documents/filter", json=asked).json()
        if "notify" in block["block_schema"]["capabilities"]
    ]
    for name, match, events, said in (
        ("failed, drifted or checked nothing", ANY_RUN, states(NOTIFY), "{{ flow_run.state.message }}"),
        ("was lost too often", {**ANY_RUN, "prefect.run-count": str(TRIES + 1)}, states(("Crashed",)), LOST_TOO_OFTEN),
        ("waits for money", ANY_RUN, {PARKED_EVENT}, "{{ event.payload.why }}"),
    ):
        if blocks:
            yield AutomationCore(
                name=f"varband: people are told of what {name}",
                description=f"to {', '.join(block['block_type']['slug'] + '/' + block['name'] for block in blocks)}",
                trigger=_when(match, related=WHOLE, expect=events),
                actions=[
                    SendNotification(
                        block_document_id=block["id"],
                        subject="{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.name }}",
                        body=f"{said}\n\n{{{{ flow_run|ui_url }}}}",
                    )
                    for block in blocks
                ],
            )


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
